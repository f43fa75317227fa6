"""What Spotwright puts into a cluster, and how a cluster is left again. It knows documents, no model."""
