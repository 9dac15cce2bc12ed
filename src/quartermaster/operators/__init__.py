"""What the leader runs: the storage clusters of a namespace, and the process that holds all of it."""
