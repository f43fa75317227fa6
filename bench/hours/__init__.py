"""`make bench-hours`: what a quiet and a busy hour cost the API server and the account."""
