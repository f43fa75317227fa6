"""EC2: requests and ids in, instances, types, prices and selected resources out.

Nothing is chosen here: what to launch and what to terminate comes in.
"""
