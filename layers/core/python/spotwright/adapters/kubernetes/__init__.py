"""The Kubernetes API: values of the model in and out (`cluster`), or plain documents (`dynamic_client`, `watch`).

Only `codecs` know how an object is written.
"""
