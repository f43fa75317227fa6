"""What consolidation saves, what it moves for that, and what it takes to decide."""
