"""From CreateFleet or RunInstances to started instances: templates, capacity pools, reservations, placement groups.

Answers with instances or with EC2's error for each pool; knows nothing of what nodes are for.
"""
