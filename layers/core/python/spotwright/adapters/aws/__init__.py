"""AWS: a module for each service. Clients go in (`clients` makes them), values of the model come out.

The modules know no Kubernetes object (`eks` opens a connection to an API server) and decide nothing.
"""
