"""What is looked at before anything is made: whether a cluster and its account are ready for Spotwright."""
