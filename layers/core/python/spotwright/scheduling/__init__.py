"""Pending pods and a snapshot in, a plan out: which nodes to make, of what, for whom, and why."""
