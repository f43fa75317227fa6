"""The state of a cluster as bytes, and back: what the forwarder ships and the functions read (ADR 20)."""
