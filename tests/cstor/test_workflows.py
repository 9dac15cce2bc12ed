"""Each workflow of a cStor cluster, from the config to the pools and through every later change."""

from __future__ import annotations

import functools

import pytest

from quartermaster.hooks.conformance.scenarios import SCENARIOS, clean_up
from quartermaster.testing.simulation import run
from tests.hooks.toy import memory_store

from .further import FURTHER
from .standins import IMMEDIATE, WAITING
from .world import living, site

pytestmark = pytest.mark.slow


async def lived(name: str, storage_class: str) -> None:
    store = memory_store()
    async with living(store):
        place = site(store, name, storage_class)
        drive = FURTHER[name] if name in FURTHER else SCENARIOS[name].drive
        await drive(place)
        await clean_up(place)


@pytest.mark.parametrize("storage_class", [IMMEDIATE, pytest.param(WAITING, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", SCENARIOS)
def test_workflow_in_simulation(name: str, storage_class: str) -> None:
    run(functools.partial(lived, name, storage_class), seed=1)


@pytest.mark.parametrize("name", FURTHER)
def test_further_workflow_in_simulation(name: str) -> None:
    run(functools.partial(lived, name, IMMEDIATE), seed=1)
