"""Options of the commands that bring a host into a cluster: its name, its addresses, and what it offers."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any, TypeVar

import click

from quartermaster.support.errors import UsageError

T = TypeVar("T")


class Offer:
    """What was given; empty where nothing was."""

    def __init__(
        self,
        *,
        name: str = "",
        addresses: tuple[str, ...] = (),
        labels: dict[str, str | None] | None = None,
        devices: tuple[str, ...] = (),
        directories: tuple[str, ...] = (),
        all_devices: bool = False,
    ) -> None:
        self.name = name
        self.addresses = addresses
        self.labels = labels or {}
        self.devices = devices
        self.directories = directories
        self.all_devices = all_devices


def offer_options(function: Callable[..., T]) -> Callable[..., T]:
    """The command receives `offer`."""

    @click.option("--name", metavar="HOST", default="", help="The name of this host; its own unless given.")
    @click.option(
        "--address",
        "addresses",
        metavar="IP",
        multiple=True,
        help="An address under which others reach this host; may be repeated. Found by itself unless given.",
    )
    @click.option(
        "--label",
        "labels",
        metavar="KEY=VALUE",
        multiple=True,
        callback=_labels,
        help="A label of the Host object, for nodeSelector; KEY- takes it back until given again; may be repeated.",
    )
    @click.option(
        "--device",
        "devices",
        metavar="PATH",
        multiple=True,
        help="A disk that the host offers, as root; may be repeated.",
    )
    @click.option(
        "--directory",
        "directories",
        metavar="PATH",
        multiple=True,
        type=click.Path(file_okay=False, resolve_path=True),
        help="A directory that the host offers; may be repeated.",
    )
    @click.option("--all-devices", is_flag=True, help="Offer every disk that is blank and idle, as root.")
    @functools.wraps(function)
    def wrapped(*arguments: Any, **options: Any) -> T:
        names = ("name", "addresses", "labels", "devices", "directories", "all_devices")
        return function(*arguments, offer=Offer(**{name: options.pop(name) for name in names}), **options)

    return wrapped


def require_root_for_disks(offer: Offer) -> None:
    """Nobody else can format and mount one, and the agent would find that out one by one."""
    if (offer.devices or offer.all_devices) and os.geteuid() != 0:
        given = "--device" if offer.devices else "--all-devices"
        raise UsageError(
            f"cannot use {given}: disks are formatted and mounted by root, and this is not root",
            hint="run it as root, or offer a directory with --directory",
        )


def _labels(_context: click.Context, _parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for text in given:
        key, equals, value = text.partition("=")
        taken_back = not equals and key.endswith("-")  # as kubectl has it
        key = key.removesuffix("-") if taken_back else key
        if not key or not (equals or taken_back):
            raise click.BadParameter(f'"{text}" is not KEY=VALUE; for example rack=7, or rack- to take it back')
        found[key] = None if taken_back else value
    return found
