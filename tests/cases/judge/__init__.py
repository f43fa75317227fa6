"""Decides whether a node-provisioning plan is legal for a case, knowing nothing of how the plan was found.

Reading order: quantity and requirement (the two algebras) -> cluster (the case as nouns), candidates (which pods
may be
placed at all), host (a node that exists or is promised) -> hosting (rules that concern one node), topology (rules
between
nodes), alone (pods left behind, weight) -> verdict (all of it for one plan).
"""
