"""The local stack: a Kubernetes control plane, an AWS endpoint and booting instances, all on loopback."""
