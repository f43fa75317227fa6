"""IAM's policy language: documents, an action, a resource and condition keys in; allow or deny out.

Knows no service and keeps no state.
"""
