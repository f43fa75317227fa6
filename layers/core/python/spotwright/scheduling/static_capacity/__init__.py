"""Static NodePools (``spec.replicas``, feature gate StaticCapacity): each keeps so many nodes, whatever pods wait.

A snapshot and a catalog go in. The nodes that static NodePools lack come out, and the NodeClaims that they have beyond
their replicas. Knows no pending pod: the nodes are in flight when pods are planned.

Source: Karpenter v1.14 ``pkg/controllers/static/{provisioning,deprovisioning}``. Differences: pending pods use the
nodes that the same decision makes for a static NodePool; a NodeClaim names the types it may become.
"""
