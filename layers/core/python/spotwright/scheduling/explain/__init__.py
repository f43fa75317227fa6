"""Why a pod has no place: per NodePool, which requirement ruled out what, and the nearest miss.

A finished placement goes in, sentences come out. Decides nothing.
"""
