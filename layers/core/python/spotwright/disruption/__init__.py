"""Which nodes may be removed, how many at once, and why others stay.

In: a snapshot, the plan for its pending pods, ``now``. Out: proposals and reasons. Deletes nothing.
"""
