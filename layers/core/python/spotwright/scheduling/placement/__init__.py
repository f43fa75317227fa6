"""One attempt at placing all pods.

Pending classes of pods go in. Every pod comes out on an existing node, on a planned node, or without a place. Knows no
other attempt.
"""
