"""Places the same pods in several ways and keeps the best placement.

Knows which pods each attempt places first and how placements compare, not how an attempt places its pods.
"""
