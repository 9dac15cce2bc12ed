"""GlusterFS: glusterd on every node, XFS bricks on its disks, volumes kept on several nodes.

The plan is in `backend` and the pure modules that it names; what happens on hosts is in the three `*_agent` modules;
`tool` is the gluster command line. docs/design/glusterfs.md says why it is so.
"""

from quartermaster.backends.glusterfs.backend import GlusterBackend

__all__ = ["GlusterBackend"]
