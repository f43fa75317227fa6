"""Vector bin packing with a price per bin type.

Classes of pods, the offerings open to each class, and limits go in. The cheapest set of nodes that the search finds
comes out, and a lower bound on its price. Knows no existing node, and of rules between pods only those within one host.
"""
