"""May the caller do this: an AWS call or a launch in, nothing or the service's access-denied error out.

Each module works out what the calls of a service touch. Answers no call.
"""
