"""What a launch may make of a planned node.

Planned nodes go in. The nodes of a plan come out, each with the requirements, labels and instance types of its
NodeClaim, so that limits hold and its pods have room whichever offering is launched. Moves no pod.
"""
