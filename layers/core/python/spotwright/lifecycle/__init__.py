"""The next step of one NodeClaim, and what its conditions, events and log lines say. Pure."""
