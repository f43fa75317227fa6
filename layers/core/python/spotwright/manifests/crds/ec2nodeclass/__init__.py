"""The CustomResourceDefinition of EC2NodeClass: spec, selector terms, status."""
