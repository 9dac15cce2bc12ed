"""Which BlockDevice is the disk of a Storage: by whole names only."""

import pytest

from quartermaster.backends.cstor.correlate import Correlation, correlate, volume_of
from quartermaster.resources import from_document
from quartermaster.resources.kubernetes.volumes import PersistentVolume, VolumeAttachment
from quartermaster.resources.openebs import BlockDevice, BlockDeviceClaim
from tests.backends.cstor.world import device


def volume(name: str = "pvc-1", handle: str = "") -> PersistentVolume:
    csi = {"driver": "csi.example", "volumeHandle": handle or name}
    return from_document(PersistentVolume, {"metadata": {"name": name}, "spec": {"csi": csi}})


def find(*devices: BlockDevice, of: PersistentVolume | None = None, told: dict[str, str] | None = None) -> Correlation:
    attachment = from_document(
        VolumeAttachment,
        {
            "metadata": {"name": "a"},
            "spec": {"attacher": "x", "source": {"persistentVolumeName": "pvc-1"}, "nodeName": "n1"},
            "status": {"attached": True, "attachmentMetadata": told or {}},
        },
    )
    return correlate("uid-1", volume_of(of or volume(), attachment), devices)


def by_id(name: str, link: str, **more: str) -> BlockDevice:
    return device(name, "n1", links=[f"/dev/disk/by-id/{link}"], **more)


@pytest.mark.parametrize(
    "link",
    ["google-pvc-1", "scsi-0Google_PersistentDisk_pvc-1", "scsi-0DO_Volume_pvc-1", "virtio-pvc-1", "pvc-1"],
)
def test_a_device_is_known_by_each_spelling_of_the_volume_in_a_link(link: str) -> None:
    found = find(by_id("bd", link))
    assert found.device is not None
    assert found.device.metadata.name == "bd"


@pytest.mark.parametrize("link", ["google-pvc-10", "google-pvc-11", "google-my-pvc-1", "google-pvc-1-part1", "xpvc-1"])
def test_a_part_of_a_name_is_another_disk(link: str) -> None:
    assert find(by_id("bd", link)) == Correlation()


def test_a_device_is_known_by_its_serial_or_handle() -> None:
    assert find(device("bd", "n1", serial="pvc-1")).device is not None
    amazon = volume("pvc-9", "vol-0123abc")
    assert find(by_id("bd", "nvme-Amazon_Elastic_Block_Store_vol0123abc"), of=amazon).device is not None
    google = volume("pvc-9", "projects/p/zones/z/disks/disk-7")
    assert find(by_id("bd", "google-disk-7"), of=google).device is not None


def test_a_serial_that_was_cut_short_is_known() -> None:
    long = volume("pvc-01234567-89ab-cdef-0123-456789abcdef")
    assert find(device("bd", "n1", serial="pvc-01234567-89ab-cd"), of=long).device is not None
    assert find(by_id("bd", "virtio-pvc-01234567-89ab-cd"), of=long).device is not None
    assert find(device("bd", "n1", serial="pvc-01234567-89ab-c"), of=long).device is None
    cinder = volume("pvc-1", "01234567-89ab-cdef-0123-456789abcdef")
    assert find(by_id("bd", "virtio-01234567-89ab-cdef-0"), of=cinder).device is not None


def test_the_beginning_of_a_name_that_is_not_random_is_no_name() -> None:
    first = volume("pvc-1", "vol-cluster-production-1")
    assert find(by_id("bd", "virtio-vol-cluster-producti"), of=first) == Correlation()
    assert find(device("bd", "n1", serial="vol-cluster-producti"), of=first) == Correlation()
    assert find(by_id("bd", "virtio-vol-cluster-production-1"), of=first).device is not None


def test_dashes_are_left_out_only_where_amazon_does() -> None:
    assert find(by_id("bd", "google-disk11"), of=volume("pvc-9", "disk-1-1")) == Correlation()
    assert find(by_id("bd", "google-disk11"), of=volume("pvc-9", "disk-11")) == Correlation()


def test_a_device_is_known_by_the_path_that_the_attacher_told() -> None:
    told = {"devicePath": "/dev/xvdb"}
    assert find(device("bd", "n1", path="/dev/xvdb"), told=told).device is not None
    assert find(device("bd", "n1", path="/dev/xvdba"), told=told).device is None


def test_two_that_answer_to_the_name_are_both_named_and_none_is_taken() -> None:
    found = find(by_id("one", "google-pvc-1"), by_id("two", "scsi-0Google_PersistentDisk_pvc-1"))
    assert found == Correlation(None, ("one", "two"))


def test_the_one_that_was_known_stays_when_a_second_answers_to_the_name() -> None:
    known = device("two", "n1", serial="pvc-1", labels={"dao.mayadata.io/storage-uid": "uid-1"})
    found = find(by_id("one", "google-pvc-1"), known)
    assert found.device is known
    assert found.rivals == ("one",)


def test_a_device_of_another_storage_is_not_taken() -> None:
    other = device("bd", "n1", serial="pvc-1", labels={"dao.mayadata.io/storage-uid": "uid-2"})
    assert find(other) == Correlation(None, ("bd",))


def test_a_claim_that_names_the_storage_says_it_outright() -> None:
    claim = from_document(
        BlockDeviceClaim,
        {
            "metadata": {"name": "c", "annotations": {"dao.mayadata.io/storage-uid": "uid-1"}},
            "spec": {"blockDeviceName": "odd"},
        },
    )
    devices = [device("odd", "n1"), by_id("bd", "google-pvc-7")]
    found = correlate("uid-1", volume_of(volume(), None), devices, [claim])
    assert found.device is devices[0]
