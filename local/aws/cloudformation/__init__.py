"""CloudFormation: templates in, stacks of real resources out, with change sets, roll-back and events.

Resources are made by calls to this very process with the stack's role. moto's own engine makes resources while it
resolves references, skips what it does not know, and cannot roll back; this one replaces it whole.
"""
