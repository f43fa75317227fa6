"""What EC2 offers in the region: instance types, zones, prices and images, and the calls that show them.

Knows no instance.
"""
