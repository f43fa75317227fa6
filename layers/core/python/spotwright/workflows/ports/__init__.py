"""The Protocols of the outside world that workflows use, and the values that cross them; no adapters."""
