"""The planner: a snapshot and an instance catalog in, a plan out.

A plan says which nodes to make, as which instance types, for which pods, and why. Start reading at ``planner``;
docs/planner.md explains the search. Reads no clock and does no I/O.
"""
