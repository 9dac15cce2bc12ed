"""Which BlockDevice is the disk of a Storage.

Nothing in OpenEBS says so: the node disk manager sees a disk, the attacher attached a volume. They meet in what the
volume is called. Each way in which a driver writes a volume's name on a device is compared as a whole: a device link
is one of the known spellings of the name, or it is another disk. A part of a name never counts, for `pvc-1` begins
`pvc-10`. Where two devices carry the name, neither is taken.

One sort of disk keeps only the beginning of its name. That beginning is a name by itself only where it is random, which
is so for a uuid; of any other name many begin alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from quartermaster.backends.cstor.names import STORAGE_UID_LABEL
from quartermaster.resources.agility import STORAGE_UID_ANNOTATION
from quartermaster.resources.kubernetes.volumes import PersistentVolume, VolumeAttachment
from quartermaster.resources.openebs import BlockDevice, BlockDeviceClaim

# What udev or the driver puts before the name of the volume in /dev/disk/by-id.
LINK_PREFIXES = (
    "",
    "google-",
    "scsi-0Google_PersistentDisk_",
    "scsi-0DO_Volume_",
    "scsi-0HC_Volume_",
    "scsi-0QEMU_QEMU_HARDDISK_",
    "nvme-Amazon_Elastic_Block_Store_",
    "virtio-",
    "scsi-",
    "ata-",
    "nvme-",
    "wwn-0x",
    "dm-uuid-mpath-",
)
# A virtio disk has room for so many characters of its serial.
_VIRTIO_SERIAL = 20
# What is long enough and random from its beginning.
_UUID = re.compile(r"(pvc-)?[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_AMAZON = re.compile(r"vol-[0-9a-f]+")
# Where a driver tells its attacher's result, and the device is named in it.
_PATH_KEYS = ("devicePath", "device", "deviceName", "path")
_SERIAL_KEYS = ("serial", "deviceSerial", "wwn", "diskSerial")


class Volume(msgspec.Struct, frozen=True):
    """The names by which the disk may be known on its node, each to be found as a whole."""

    names: tuple[str, ...]
    paths: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()  # known to the user, besides LINK_PREFIXES


class Correlation(msgspec.Struct, frozen=True):
    """The device, or why there is none yet: none matches, or these do."""

    device: BlockDevice | None = None
    rivals: tuple[str, ...] = ()


def volume_of(
    persistent_volume: PersistentVolume, attachment: VolumeAttachment | None, prefixes: Iterable[str] = ()
) -> Volume:
    names = [persistent_volume.metadata.name]
    if (csi := persistent_volume.spec.csi) is not None:
        handle = csi.volume_handle.rpartition("/")[2]
        names += [csi.volume_handle, handle]
        if _AMAZON.fullmatch(handle):
            names.append(handle.replace("-", ""))  # vol-0a1b is vol0a1b on the device
    paths: list[str] = []
    if attachment is not None:
        told = attachment.status.attachment_metadata
        paths += [told[key] for key in _PATH_KEYS if told.get(key, "").startswith("/")]
        names += [told[key] for key in _SERIAL_KEYS if told.get(key)]
    return Volume(tuple(dict.fromkeys(filter(None, names))), tuple(dict.fromkeys(paths)), tuple(prefixes))


def correlate(
    storage_uid: str, volume: Volume, devices: Sequence[BlockDevice], claims: Iterable[BlockDeviceClaim] = ()
) -> Correlation:
    """The device among those of the node.

    A claim that carries the uid of the Storage says it outright; after it the label that we once wrote, if the device
    still carries the name; then the names.
    """
    said = {
        c.spec.block_device_name for c in claims if c.metadata.annotations.get(STORAGE_UID_ANNOTATION) == storage_uid
    }
    matching = [device for device in devices if device.metadata.name in said]
    if not matching:
        spellings = frozenset(_spellings(volume))
        matching = [device for device in devices if spellings.intersection(_names_of(device, volume))]
    if len(matching) > 1:
        known = [device for device in matching if device.metadata.labels.get(STORAGE_UID_LABEL) == storage_uid]
        if len(known) != 1:
            return Correlation(rivals=tuple(sorted(device.metadata.name for device in matching)))
        # A second device came to carry the name (multipath, a clone): the one that was known stays.
        return Correlation(known[0], tuple(sorted(d.metadata.name for d in matching if d is not known[0])))
    if matching and matching[0].metadata.labels.get(STORAGE_UID_LABEL, storage_uid) != storage_uid:
        return Correlation(rivals=(matching[0].metadata.name,))
    return Correlation(matching[0] if matching else None)


def _spellings(volume: Volume) -> Iterator[str]:
    """Links are compared by their last part, paths as a whole."""
    yield from volume.paths
    for name in volume.names:
        for prefix in (*LINK_PREFIXES, *volume.prefixes):
            yield prefix + name
        if _UUID.fullmatch(name):
            yield "virtio-" + name[:_VIRTIO_SERIAL]
            yield _cut(name)


def _cut(name: str) -> str:
    """A serial of which the disk kept the beginning; the mark keeps it from matching a link."""
    return "serial:" + name[:_VIRTIO_SERIAL]


def _names_of(device: BlockDevice, volume: Volume) -> Iterator[str]:
    serial = device.spec.details.serial
    if serial:
        yield serial
        if len(serial) == _VIRTIO_SERIAL:
            yield "serial:" + serial
    if volume.paths:
        yield device.spec.path
    for links in device.spec.devlinks:
        for link in links.links:
            yield link
            yield link.rpartition("/")[2]
