"""EC2's answers into the model; no call is made here."""
