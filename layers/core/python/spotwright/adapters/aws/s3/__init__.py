"""The bucket: bodies under the hash of their content, and the account's own prices."""
