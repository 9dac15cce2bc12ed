"""The text of a systemd unit for a daemon. Pure."""

from __future__ import annotations

import re

from quartermaster.host.daemons.base import Daemon

# However often it ends it is started again: a host without its agent is of no use. It does not wait until the network
# works, which some hosts never say of themselves: it tries again, as it does when the network goes.
_ORDER = "After=network.target\nStartLimitIntervalSec=0\n"
_RESTART = "Restart=always\nRestartSec=2"
_INSTALL = "\n[Install]\nWantedBy=multi-user.target\n"
_PLAIN = re.compile(r"^[A-Za-z0-9_./:=,@+-]+$")


def unit_name(name: str) -> str:
    return f"quartermaster-{name}.service"


def unit_text(daemon: Daemon, program: str) -> str:
    """Without [Install] and without Restart, unless it is lasting: when a daemon runs is for the agent to decide, also
    after a boot; and that the agent runs is for systemd.
    """
    environment = "".join(
        f"Environment={_quoted(f'{key}={value}', dollar=False)}\n" for key, value in sorted(daemon.environment.items())
    )
    command = " ".join([_quoted(program), *(_quoted(argument) for argument in daemon.argv[1:])])
    return (
        "[Unit]\n"
        f"Description=Quartermaster daemon {daemon.name}\n"
        f"{_ORDER if daemon.lasting else ''}"
        "\n"
        "[Service]\n"
        "Type=exec\n"
        f"ExecStart={command}\n"
        f"{environment}"
        f"WorkingDirectory={daemon.directory.replace('%', '%%')}\n"
        f"{_RESTART if daemon.lasting else 'Restart=no'}\n"
        f"KillMode={'process' if daemon.keep_children else 'mixed'}\n"
        f"TimeoutStopSec={daemon.stop_timeout_s:g}\n"
        f"{_INSTALL if daemon.lasting else ''}"
        "\n"
        "[X-Quartermaster]\n"
        f"Fingerprint={daemon.fingerprint}\n"
    )


def fingerprint_of(text: str) -> str:
    """Of the description that a unit was made from; empty where it is not ours."""
    for line in text.splitlines():
        if line.startswith("Fingerprint="):
            return line.removeprefix("Fingerprint=")
    return ""


def environment_of(text: str) -> dict[str, str]:
    found = {}
    for line in text.splitlines():
        if line.startswith("Environment="):
            key, _, value = _unquoted(line.removeprefix("Environment=")).partition("=")
            found[key] = value
    return found


def _quoted(word: str, *, dollar: bool = True) -> str:
    """As systemd reads it back: % begins a specifier everywhere, $ a variable on command lines."""
    word = word.replace("%", "%%")
    if dollar:
        word = word.replace("$", "$$")
    if _PLAIN.match(word):
        return word
    for plain, escaped in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\t", "\\t")):
        word = word.replace(plain, escaped)
    return f'"{word}"'


def _unquoted(text: str) -> str:
    if text.startswith('"'):
        text = re.sub(r"\\(.)", lambda match: {"n": "\n", "t": "\t"}.get(match[1], match[1]), text[1:-1])
    return text.replace("%%", "%")
