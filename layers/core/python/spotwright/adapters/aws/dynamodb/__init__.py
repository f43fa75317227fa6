"""The state table: rows in and out. Every write is conditional on the version that was read.

Knows the types of rows, and no workflow.
"""
