"""Leader and agents: who decides, who does, and how they meet in the store.

docs/design/orchestration.md has the reasons.
"""
