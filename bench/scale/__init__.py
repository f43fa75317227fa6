"""`make bench-scale`: how the deployed parts keep up with a large cluster of a real API server."""
