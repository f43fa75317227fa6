"""What a NodeClass can buy: instance types with labels, capacity, offerings and prices.

In: EC2's descriptions and prices of a region, a NodeClass, what nodes and launches have shown (discovered capacity,
unavailable offerings). Out: InstanceTypes and catalogs. Knows nothing of pods and of launches.
"""
