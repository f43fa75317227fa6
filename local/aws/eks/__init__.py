"""EKS: the registered control plane, access entries and Pod Identity; whose a token is, and credentials for pods.

Knows nothing of the control plane's processes.
"""
