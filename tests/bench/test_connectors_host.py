"""The fake host on which both libraries run: its programs answer as real ones, and its kernel forgets what is gone."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bench.connectors.host import encoded, escaped, fake_host
from bench.connectors.kernel import Kernel, Lun, disk_name, page_83
from bench.connectors.programs import iscsiadm, mount, tee, umount
from bench.connectors.programs.answer import Answer
from bench.connectors.programs.iscsi import record_file
from bench.connectors.volumes import NEVER, PCI, PORT, add_iscsi, wwid


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    for name in ("dev/disk/by-id", "dev/disk/by-path", "sys/class/block", "proc/self", "etc/iscsi/nodes"):
        (tmp_path / name).mkdir(parents=True)
    return Kernel(tmp_path)


def files(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_symlink() or path.is_file())


@pytest.mark.parametrize(("number", "name"), [(0, "sda"), (25, "sdz"), (26, "sdaa"), (701, "sdzz"), (702, "sdaaa")])
def test_disks_are_called_as_the_kernel_calls_them(number: int, name: str) -> None:
    assert disk_name(number) == name


def test_a_disk_is_found_by_every_name_and_leaves_nothing(kernel: Kernel) -> None:
    before = files(kernel.root)
    target = add_iscsi(kernel, 1)
    kernel.log_in(target)
    kernel.scan(target.host, 1)
    disk = target.disk(1)

    for link in ("by-id/scsi-3" + wwid(1), f"by-path/ip-{target.portal}-iscsi-{target.name}-lun-1"):
        assert (kernel.root / "dev/disk" / link).resolve() == kernel.root / "dev" / disk
    at = kernel.root / "sys/class/scsi_host/host3/device/session1/target3:0:0/3:0:0:1/block" / disk
    assert at.resolve() == (kernel.root / "sys/class/block" / disk).resolve()
    assert (kernel.root / "sys/class/scsi_device/3:0:0:1/device/vpd_pg83").read_bytes() == page_83(wwid(1))
    kernel.log_out(target)
    assert files(kernel.root) == before


async def test_a_device_is_as_late_as_its_volume_says(kernel: Kernel) -> None:
    target = add_iscsi(kernel, 1, late_s=0.01)
    target.luns[2] = Lun(wwid(2), NEVER)
    kernel.log_in(target)
    kernel.scan(target.host, 1)
    kernel.scan(target.host, 2)
    assert kernel.disks() == []
    async with asyncio.timeout(30):
        while not kernel.disks():
            await asyncio.sleep(0.005)
    assert kernel.disks() == [target.disk(1)]


def test_a_target_with_chap_wants_what_is_in_the_record(kernel: Kernel) -> None:
    target = add_iscsi(kernel, 1, chap=("alice", "secret"))
    node = ["-m", "node", "-T", target.name, "-p", target.portal]

    assert iscsiadm(kernel, [*node, "--login"], "").code == 21
    iscsiadm(kernel, [*node, "--op", "new"], "")
    assert iscsiadm(kernel, [*node, "--login"], "").code == 24
    for key, value in (("authmethod", "CHAP"), ("username", "alice"), ("password", "secret")):
        iscsiadm(kernel, [*node, "--op", "update", "-n", f"node.session.auth.{key}", "-v", value], "")
    assert [iscsiadm(kernel, [*node, "--login"], "").code for _ in range(2)] == [0, 15]
    assert target.name.encode() in iscsiadm(kernel, ["-m", "session"], "").out
    iscsiadm(kernel, [*node, "--logout"], "")
    iscsiadm(kernel, [*node, "--op", "delete"], "")
    assert not record_file(kernel, target.name, target.portal).exists()
    assert not kernel.session(target.name)


def test_a_port_of_fibre_channel_is_seen_and_its_disk_comes_with_a_scan(kernel: Kernel) -> None:
    target = kernel.add_port(PORT, {1: Lun(wwid(1))}, bus=PCI)

    tee(kernel, [f"/sys/class/scsi_host/host{target.host}/scan"], "0 0 1")

    link = kernel.root / f"dev/disk/by-path/pci-0000:05:00.3-fc-0x{PORT}-lun-1"
    assert link.resolve().name == target.disk(1)


def test_the_second_image_of_a_name_is_another_device(kernel: Kernel) -> None:
    devices = [kernel.images.map(pool, "volume", "192.0.2.1:6789", "admin") for pool in ("a", "b")]

    assert kernel.images.unmap(devices[1])
    assert [image["pool"] for image in kernel.images.all()] == ["a"]
    assert not kernel.images.unmap(devices[1])


def test_who_mounts_second_is_refused(kernel: Kernel) -> None:
    argv = ["-t", "nfs", "-o", "vers=4.2", "server:/export", "/mnt"]

    assert [mount(kernel, argv, "").code for _ in range(2)] == [0, 32]
    assert " /mnt rw - nfs4 server:/export" in (kernel.root / "proc/self/mountinfo").read_text()
    assert [umount(kernel, ["/mnt"], "").code for _ in range(2)] == [0, 32]


def test_an_answer_is_lines_that_bash_can_read() -> None:
    assert (
        encoded(Answer(3, b"a\n\\\0", b"no", ("/usr/bin/true", "x")))
        == b"3\na\\0012\\0134\\0000\nno\n/usr/bin/true x\n"
    )
    assert escaped(b"plain") == "plain"


async def test_a_program_is_a_real_executable_and_what_it_was_asked_is_known(tmp_path: Path) -> None:
    async with fake_host(tmp_path, "one") as host:
        target = add_iscsi(host.kernel, 1)
        host.kernel.log_in(target)
        for argv, stdin in (
            (["tee", "/sys/class/scsi_host/host3/scan"], b"0 0 1"),
            (["sg_vpd", "--page=0x83", f"/dev/{target.disk(1)}"], b""),
            (["blockdev", "--flushbufs", "/dev/absent"], b""),
        ):
            program = await asyncio.create_subprocess_exec(
                str(host.root / "bin" / argv[0]),
                *argv[1:],
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            out, err = await asyncio.wait_for(program.communicate(stdin), 60)
            if argv[0] == "sg_vpd":
                assert (program.returncode, out) == (0, page_83(wwid(1)))
        assert program.returncode == 1
        assert err.endswith(b"/dev/absent: Input/output error\n")
        assert [(ran.argv[0], ran.stdin) for ran in host.ran] == [("tee", "0 0 1"), ("sg_vpd", ""), ("blockdev", "")]
