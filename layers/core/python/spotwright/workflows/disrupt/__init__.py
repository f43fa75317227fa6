"""Disruption by choice: proposed, validated fifteen seconds later, committed. Nothing is deleted here."""
