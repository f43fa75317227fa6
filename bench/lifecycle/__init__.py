"""`make bench-lifecycle`: the life of nodes with a pod each, beside Karpenter with nodes that kwok plays."""
