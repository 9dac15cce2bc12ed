"""What the host lab lays over this machine's root."""

import os
from pathlib import Path

from tools import hostlab


def test_links_within_the_layer_work_before_it_is_the_root(tmp_path: Path) -> None:
    for name in ("usr/bin", "usr/sbin"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "usr/bin/kmod").write_text("program")
    (tmp_path / "usr/sbin/insmod").symlink_to("/usr/bin/kmod")
    (tmp_path / "usr/bin/awk").symlink_to("/etc/alternatives/awk")
    hostlab.make_links_relative(tmp_path)
    assert (tmp_path / "usr/sbin/insmod").read_text() == "program"
    assert os.readlink(tmp_path / "usr/bin/awk") == "/etc/alternatives/awk"


def test_other_packages_are_another_layer(tmp_path: Path) -> None:
    packages = tmp_path / "packages.txt"
    packages.write_text("# name what for\nkmod  modules\n")
    assert hostlab.package_names(packages) == ["kmod"]
    before = hostlab.layer_directory(packages)
    packages.write_text("kmod  modules, in other words\n")
    assert hostlab.layer_directory(packages) == before
    packages.write_text("kmod  modules\nudev  nodes\n")
    assert hostlab.layer_directory(packages) != before
