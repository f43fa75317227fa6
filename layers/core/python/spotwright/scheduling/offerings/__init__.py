"""What can be bought.

NodeClaim templates with their instance types go in. An index of offerings in the order of their prices comes out, with
NodeOverlays and capacity reservations applied. Knows no pod.
"""
