"""One attempt at placing all pods.

Pending classes of pods and the nodes that may take them go in. Every pod comes out on an existing node, on a planned
node, or without a place. Knows no other attempt.

Reading order: ``placement`` (the state of an attempt), ``placement_passes`` (its order of steps), then the steps:
``domain_assignment``, ``sequential``, ``existing_node_filling``, ``backfill``, ``node_packing``.
"""
