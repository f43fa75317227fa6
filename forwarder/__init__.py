"""The in-cluster watcher: sends what happens in one cluster to the functions' queues. It decides nothing."""
