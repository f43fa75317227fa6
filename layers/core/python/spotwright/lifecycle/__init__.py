"""The life of a NodeClaim after it was decided: launched, registered, initialized, drained; its conditions.

In: the claim, its node, pods, ``now``. Out: conditions, events, deletions as values. Reads and writes nothing.
"""
