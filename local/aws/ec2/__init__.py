"""EC2 over moto: instances, their network and events, request limits; what is for sale and how it is launched.

Knows nothing of EKS, and asks nobody whether a caller may: checks of launches are handed in.
"""
