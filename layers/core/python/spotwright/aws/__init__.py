"""What we know about AWS, without a call: sizing, offerings, launches, user data, AMIs, interruption messages."""
