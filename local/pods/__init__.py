"""Runs the containers of chosen pods as real processes, exactly while their pods run on a node."""
