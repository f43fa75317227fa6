"""What commands read: files, stdin, a running cluster or the built-in catalog in, values of the model out.

Nothing here prints.
"""
