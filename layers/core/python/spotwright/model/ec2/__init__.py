"""EC2 as frozen values: instance types with their offerings, instances, answers of CreateFleet, health of offerings.

Knows no AWS API and no Kubernetes object.
"""
