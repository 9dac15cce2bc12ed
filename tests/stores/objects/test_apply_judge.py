"""The real API server is the judge: the same random operations on it and on our functions, compared after each.

Compared are the whole document with its owners (times, order and spelling included) and the set of conflicts. The
resource has every kind of list and map that a structural schema can declare.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import aiohttp
import msgspec
import pytest
from hypothesis import HealthCheck, given, note, settings

from quartermaster.support.entropy import name_suffix
from quartermaster.support.errors import FieldConflict
from quartermaster.testing.servers import KubernetesAccess
from tests.stores.objects.specimens import (
    API_VERSION,
    GROUP,
    PLURAL,
    SCHEMA,
    VERSION,
    Answer,
    Operation,
    answer_of,
    crowds,
    document_of,
    has_forbidden_null,
    sequences,
)

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow]

CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"{PLURAL}.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"plural": PLURAL, "singular": "specimen", "kind": "Specimen", "listKind": "SpecimenList"},
        "versions": [{
            "name": VERSION,
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": SCHEMA},
            "subresources": {"status": {}},
        }],
    },
}  # fmt: skip


class Judge:
    """The API server, asked in the plainest way."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._objects = f"{url}/apis/{API_VERSION}/namespaces/default/{PLURAL}"

    async def ask(self, operation: Operation, live: dict[str, Any] | None, sent: dict[str, Any]) -> Answer:
        parameters = {"fieldManager": operation.manager}
        url = f"{self._objects}/{sent['metadata']['name']}"
        url += f"/{operation.subresource}" if operation.subresource else ""
        method = "PUT"
        content = "application/json"
        if operation.verb == "apply":
            method, content = "PATCH", "application/apply-patch+yaml"
            parameters["force"] = "true" if operation.force else "false"
        elif live is None:
            method, url = "POST", self._objects
        data, headers = msgspec.json.encode(sent), {"Content-Type": content}
        async with self._session.request(method, url, params=parameters, data=data, headers=headers) as response:
            answer = msgspec.json.decode(await response.read())
            if response.status < 300:
                return Answer(document=answer)
            causes = answer.get("details", {}).get("causes", [])
            if response.status == 409 and causes:
                return Answer(conflicts=tuple(sorted({conflict_of(cause) for cause in causes})))
            return Answer(refused=f"{response.status} {answer['message']}")


def conflict_of(cause: dict[str, str]) -> FieldConflict:
    assert cause["reason"] == "FieldManagerConflict"
    found = re.match(r'conflict with "([^"]+)"', cause["message"])
    assert found
    return FieldConflict(found[1], cause["field"])


def with_what_the_server_sets(document: dict[str, Any], judged: dict[str, Any]) -> dict[str, Any]:
    names = ("uid", "resourceVersion", "generation", "creationTimestamp", "namespace")
    metadata = {name: value for name, value in document["metadata"].items() if name not in names}
    return {**document, "metadata": metadata | {name: judged["metadata"][name] for name in names}}


def spelled(document: dict[str, Any]) -> str:
    """The record of owners to the letter: order of entries, order of keys."""
    entries = document["metadata"].get("managedFields", [])
    order = ("manager", "operation", "apiVersion", "time", "fieldsType", "subresource", "fieldsV1")
    return "\n".join(msgspec.json.encode({name: entry.get(name) for name in order}).decode() for entry in entries)


def now_as_the_server_saw_it(started: str, answer: Answer) -> str:
    """The request may have met the turn of a second."""
    entries = answer.document["metadata"].get("managedFields", []) if answer.document else []
    return max([started, *(entry.get("time", "") for entry in entries)])


@asynccontextmanager
async def judge_at(server: KubernetesAccess) -> AsyncIterator[Judge]:
    headers = {"Authorization": f"Bearer {server.token}"}
    connector = aiohttp.TCPConnector(ssl=server.tls.context())
    async with aiohttp.ClientSession(headers=headers, connector=connector) as session:
        yield Judge(session, server.url)


@pytest.fixture(scope="module")
def server(kubernetes_server: KubernetesAccess, tmp_path_factory: pytest.TempPathFactory) -> KubernetesAccess:
    path = tmp_path_factory.mktemp("judge") / "crd.json"
    path.write_bytes(msgspec.json.encode(CRD))

    async def install() -> None:
        await kubernetes_server.kubectl("apply", "--server-side", f"--filename={path}")
        await kubernetes_server.kubectl("wait", "crd", f"{PLURAL}.{GROUP}", "--for=condition=Established")

    asyncio.run(install())
    return kubernetes_server


async def compare_with_judge(server: KubernetesAccess, operations: list[Operation]) -> None:
    name = "specimen-" + name_suffix() + name_suffix()
    live: dict[str, Any] | None = None
    async with judge_at(server) as judge:
        for number, operation in enumerate(operations):
            if live is None and operation.subresource:
                continue
            sent = document_of(operation, live, name)
            started = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            judged = await judge.ask(operation, live, sent)
            ours = answer_of(operation, live, sent, now_as_the_server_saw_it(started, judged))
            note(f"{number}: {operation}")
            note(f"   before: {msgspec.json.encode(live).decode()}")
            note(f"   judged: {msgspec.json.encode(judged).decode()}")
            note(f"   ours:   {msgspec.json.encode(ours).decode()}")
            if judged.refused:
                assert ours.refused or has_forbidden_null(SCHEMA, ours.document)
                continue
            assert ours.conflicts == judged.conflicts
            if judged.document is None:
                continue
            assert ours.document is not None
            document = with_what_the_server_sets(ours.document, judged.document)
            assert document == judged.document
            assert spelled(document) == spelled(judged.document)
            live = judged.document


RANDOM = {
    "deadline": None,
    "database": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
}


@settings(max_examples=80, **RANDOM)
@given(operations=sequences())
async def test_random_operations_give_what_the_api_server_gives(
    server: KubernetesAccess, operations: list[Operation]
) -> None:
    await compare_with_judge(server, operations)


@settings(max_examples=8, **RANDOM)
@given(operations=crowds())
async def test_many_updaters_are_laid_together_as_the_api_server_does_it(
    server: KubernetesAccess, operations: list[Operation]
) -> None:
    await compare_with_judge(server, operations)


@pytest.mark.deep
@pytest.mark.timeout(900)
@settings(max_examples=2000, derandomize=False, **RANDOM)
@given(operations=sequences() | crowds())
async def test_thousands_of_random_operations_give_what_the_api_server_gives(
    server: KubernetesAccess, operations: list[Operation]
) -> None:
    await compare_with_judge(server, operations)
