"""SQS: operations on moto's queues that are safe under concurrency. Knows no consumer."""
