"""The main job, shown: pods pending, what was decided and why, nodes, an interruption, zero and back, nothing left."""
