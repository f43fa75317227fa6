"""Pending pods in, a committed decision and events on pods out. Nothing is bought here."""
