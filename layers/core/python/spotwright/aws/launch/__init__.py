"""A launch: the launch templates and the CreateFleet request for a node that was decided.

In: the node, its NodeClass, instance types, unavailable offerings. Out: requests as plain data, and what EC2's errors
mean. Equal input gives byte-equal requests. Sends nothing.
"""
