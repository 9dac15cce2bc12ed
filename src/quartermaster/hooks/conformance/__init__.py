"""Conformance: scenarios that drive a live installation through its workflows, and report what they saw.

It is an installation of its own beside the core and talks to it through objects only: what it makes bears its names,
and removing it disturbs nothing.
"""
