"""Which nodes may go, and how many at once: snapshot in, proposal out. Pure."""
