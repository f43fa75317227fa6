"""EC2: requests and ids in, instances, types, prices and selected resources out.

Callers decide what to launch and what to terminate.
"""
