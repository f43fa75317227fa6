"""Which nodes may be disrupted, how many at once, and why a node may not.

In: a snapshot, the plan for its pending pods, ``now``. Out: proposals and reasons. Deletes nothing.
"""
