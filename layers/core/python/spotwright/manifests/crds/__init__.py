"""The CustomResourceDefinitions of NodePool, NodeClaim, NodeOverlay and EC2NodeClass, as OpenAPI schemas."""
