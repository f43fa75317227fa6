"""What a plan starts from.

A snapshot and a catalog go in. Classes of equal pods, the state of nodes, a template for the NodeClaims of every
NodePool, and the places where volumes can be attached come out. Knows no price and places no pod.
"""
