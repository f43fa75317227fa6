"""A NodeClaim on the way to a node that runs its pods: launched, registered, initialized, and what follows."""
