"""Quartermaster: a storage control plane. See ARCHITECTURE.md for the map of its rooms."""

__version__ = "0.1.0"
