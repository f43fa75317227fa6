"""Which attempts at placing the same pods are made, and which of them is best.

Pods go in, the best placement comes out. Knows what is common to all attempts, not how one places its pods.
"""
