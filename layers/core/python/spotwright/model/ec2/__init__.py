"""What AWS has and sells.

Instance types with their offerings, instances, answers of CreateFleet, the health of offerings. Knows no AWS API and no
Kubernetes object.
"""
