"""Revisioned key-value stores: memory, sqlite (embedded), etcd."""
