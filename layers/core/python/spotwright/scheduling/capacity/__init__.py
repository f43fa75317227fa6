"""Pending pods, and the nodes that may take them.

Classes of pods, the state of nodes and an offering index go in. Existing nodes, planned nodes and NodePools of one
weight come out, each of which answers what it has room for and what it can still become. Knows no rule between pods and
decides nothing.
"""
