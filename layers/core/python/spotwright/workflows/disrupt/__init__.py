"""Nodes that may go: proposed, validated fifteen seconds later, committed. Nothing is deleted here."""
