"""The composition root: the environment in, clients of every port out. Nothing else reads the environment or makes
clients."""
