"""Why a node is what it is, and why a pod has no place.

A finished placement and the snapshot go in, sentences come out: for a node its price and the next best types, for a pod
per NodePool the requirement that ruled it out and the nearest miss. Decides nothing.
"""
