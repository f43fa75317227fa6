"""The state table: rows in and out, each write conditional on what was read.

It knows no workflow, only the rows' types.
"""
