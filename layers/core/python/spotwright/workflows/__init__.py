"""Gather, decide, commit; or read what was committed, and act. Each needs only the Protocols it names."""
