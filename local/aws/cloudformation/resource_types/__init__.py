"""The resource types this CloudFormation can make, by service: properties in, calls to this very process out.

A type that `registry` does not list is an error. Knows nothing of stacks and roll-back.
"""
