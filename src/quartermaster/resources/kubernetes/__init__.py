"""Kinds of Kubernetes that a storage control plane reads or writes, as far as it does.

A struct marked `partial` lacks fields that Kubernetes has; those are accepted and kept, not refused as unknown.
List types are upstream's, so that apply merges in our own stores as an API server does.
"""
