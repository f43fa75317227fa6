"""Kubernetes objects as frozen values, under Kubernetes' field names.

Pods, nodes, volumes, taints, and which pods may be evicted. Knows no wire format, and of Karpenter only its labels.
"""
