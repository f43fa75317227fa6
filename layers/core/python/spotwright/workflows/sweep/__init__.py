"""Facts in, doorbells out for whatever was missed. Nothing is written to the cluster or to EC2 here."""
