"""EKS: a cluster's name in, its facts, a token for its API server or an access entry out."""
