"""cStor pools of OpenEBS: from one CStorClusterConfig to running pools, and every later change.

`HOOKS` is what the backend offers: one hook per kind of ours. They are called by the controller and by the service in
`quartermaster.hooks`; `hook.py` says how. Their rules are pure functions, a module each: `plan` (nodes), `groups`
(RAID), `devices` and `correlate` (disks), `repair`, `expansion`, `pools` (the pool cluster), `contract` (OpenEBS).
"""

from quartermaster.backends.cstor.hooks import HOOKS

__all__ = ["HOOKS"]
