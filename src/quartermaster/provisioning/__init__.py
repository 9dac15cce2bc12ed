"""From a claim to a volume, and back: docs/design/provisioning.md says how and why.

Rules and acts are apart: `claims`, `growing`, `binding`, `volumes` and `mounting` decide; `provisioner`, `expander`,
`binder`, `deleter` and `mounter` carry it out. `asking` is the host's part of mounting.
"""

from quartermaster.provisioning.services import claims_controller
from quartermaster.provisioning.volumes import handed_out

__all__ = ["claims_controller", "handed_out"]
