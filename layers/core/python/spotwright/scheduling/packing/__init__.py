"""Vector bin packing with a price per bin type.

Input: classes of pods, the offerings that each class may use, and limits. Output: the cheapest new nodes that the
search finds, and a lower bound on their price. Existing nodes are not considered, nor are constraints between pods on
different hosts.
"""
