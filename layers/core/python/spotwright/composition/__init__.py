"""The composition root: the environment in, an adapter for every port out. Only it reads the environment and makes
clients."""
