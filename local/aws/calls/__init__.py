"""An AWS API call and its answer as values: bytes of any AWS protocol in, parameters and results out.

Also pages of answers and the log of all calls. Knows no service and no state of the account.
"""
