"""Karpenter's resources as frozen values, and what follows from them.

NodePool, NodeClaim, EC2NodeClass, NodeOverlay, CapacityBuffer; drift and the consolidation timer. Knows no wire format.
"""
