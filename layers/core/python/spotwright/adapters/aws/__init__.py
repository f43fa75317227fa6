"""AWS, one service a module: clients in (`clients` makes them), values of the model out.

They know no Kubernetes object (`eks` opens a connection to its API server) and decide nothing.
"""
