"""What all clusters of an account learn together: health of offerings, rates of EC2 calls. Conditional writes, nothing
lost."""
