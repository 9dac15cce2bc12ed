"""Which mount is a volume that is gone: only what says so itself."""

from __future__ import annotations

import pytest

from quartermaster.backends.unmounting import says_its_name
from quartermaster.host.mountinfo import Mount

NAME = "pvc-0641"


def mount(source: str, root: str = "/", type: str = "fuse.glusterfs") -> Mount:
    return Mount(
        id=2,
        parent=1,
        number="0:40",
        root=root,
        target="/mnt/d",
        options=(),
        propagation=(),
        type=type,
        source=source,
        super_options=(),
    )


@pytest.mark.parametrize("source", [f"10.200.1.1:/{NAME}", f"h1:{NAME}", f"[fd00::1]:/exports/{NAME}"])
def test_a_source_that_is_called_as_the_volume_was_is_it(source: str) -> None:
    assert says_its_name(NAME)((), mount(source))


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(mount(f"10.200.1.1:/{NAME}-old"), id="a longer name"),
        pytest.param(mount(f"10.200.1.1:/{NAME}/sub"), id="a directory of it"),
        pytest.param(mount(f"10.200.1.1:/{NAME}", root="/sub"), id="a directory of it, bound"),
        pytest.param(mount("/dev/vda1", root=f"/volumes/{NAME}", type="ext4"), id="a directory called so, bound"),
        pytest.param(mount("tmpfs", type="tmpfs"), id="something else"),
    ],
)
def test_nothing_else_is(other: Mount) -> None:
    assert not says_its_name(NAME)((), other)
