"""Committed decisions, claims and notices in, one step of each taken: the only workflow that launches, drains and
terminates."""
