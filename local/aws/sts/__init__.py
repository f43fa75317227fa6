"""Who calls: access keys and signed URLs in, callers and role sessions out; STS's own calls.

Knows nothing of what a caller may do.
"""
