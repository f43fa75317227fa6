"""Events in; what matching rules send to queues and functions out, if the target's resource policy allows.

Does not know who emits events.
"""
