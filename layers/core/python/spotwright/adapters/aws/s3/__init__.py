"""The bucket: bodies under their content's hash in and out, and what lies beside them."""
