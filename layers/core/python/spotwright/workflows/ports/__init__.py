"""What workflows need of the outside world, as Protocols, and the values that cross them. They know no adapter."""
