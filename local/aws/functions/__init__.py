"""Lambda: deployed zips in, processes that serve one invocation at a time out.

Does not know who invokes.
"""
