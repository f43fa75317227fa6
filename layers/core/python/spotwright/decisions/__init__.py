"""A snapshot and a catalog in, a decision out, with its reason: what is committed, stored and replayed. Pure."""
