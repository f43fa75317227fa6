"""A NodeClaim on the way to a node that runs its pods: launched, registered, initialized. Nothing is removed here but a
claim whose time is over."""
