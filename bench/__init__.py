"""Speed and size, measured: `make bench`. Seconds are this machine's; goals stand beside them."""
