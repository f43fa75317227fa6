"""Lambda's event source mappings: messages of SQS queues in, invocations with batches out.

Deletes what succeeded; knows nothing of how a function runs.
"""
