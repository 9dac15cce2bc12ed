"""Ctrl-C while the program is still being loaded."""

from __future__ import annotations

import sys

import pytest

from quartermaster import cli


class Interrupted:
    """Finds the module in the moment in which somebody interrupts."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        if name == "quartermaster.cli.root":
            raise KeyboardInterrupt


def test_it_ends_as_any_interrupted_command_does(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "quartermaster.cli.root", raising=False)
    monkeypatch.delattr(cli, "root", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Interrupted, *sys.meta_path])
    monkeypatch.setattr(sys, "argv", ["qm", "get", "pvc"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 130
    assert capfd.readouterr() == ("", "")
