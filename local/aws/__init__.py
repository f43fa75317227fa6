"""One process that answers as AWS on a loopback port: moto, with its gaps closed, and a control API."""
