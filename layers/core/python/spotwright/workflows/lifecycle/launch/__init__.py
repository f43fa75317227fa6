"""A committed decision in, NodeClaims with instances out: launch rows, CreateFleet, assignment."""
