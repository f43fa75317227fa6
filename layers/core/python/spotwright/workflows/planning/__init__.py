"""What every workflow that plans shares: a snapshot gathered, fitted into the time left, its decision committed and
replayed."""
