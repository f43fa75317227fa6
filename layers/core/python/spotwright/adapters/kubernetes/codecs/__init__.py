"""Kubernetes objects as JSON into the model and back; no request is made here."""
