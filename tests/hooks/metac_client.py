"""A stand-in for metac and the API server below it, made from the protocol alone: it imports nothing of Quartermaster.

`post` speaks HTTP by hand. `Cluster` keeps documents as an API server does, as far as hooks can tell. `Metac` does with
one watched object what metac's GenericController does: adds its finalizer, sends the watched object and all objects of
the declared kinds, and applies the answer (its own attachments by annotation, three-way; explicit updates and deletes).
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
import ssl
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

Document = dict[str, Any]
CREATED_FOR = "metac.openebs.io/created-due-to-watch"
LAST_APPLIED = "/gctl-last-applied"
TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


async def post(
    url: str,
    body: bytes,
    *,
    token: str = "",
    trust: ssl.SSLContext | None = None,
    headers: Iterable[tuple[str, str]] = (),
    method: str = "POST",
) -> Answer:
    """One request on a connection of its own."""
    parts = urlsplit(url)
    secure = parts.scheme == "https"
    lines = [
        f"{method} {parts.path or '/'} HTTP/1.1",
        f"Host: {parts.netloc}",
        "Connection: close",
        "Content-Type: application/json",
    ]
    given = dict(headers)
    given.setdefault("Content-Length", str(len(body)))
    lines += [f"{name}: {value}" for name, value in given.items() if value]
    if token:
        lines.append(f"Authorization: Bearer {token}")
    async with asyncio.timeout(TIMEOUT_S):
        reader, writer = await asyncio.open_connection(
            parts.hostname, parts.port or (443 if secure else 80), ssl=trust if secure else None
        )
        try:
            writer.write("\r\n".join([*lines, "", ""]).encode() + body)
            with contextlib.suppress(ConnectionError):  # refused before all was sent; the answer says why
                await writer.drain()
            raw = await reader.read()
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                await writer.wait_closed()
    head, _, content = raw.partition(b"\r\n\r\n")
    status_line, *header_lines = head.decode().split("\r\n")
    found = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in header_lines)}
    return Answer(int(status_line.split(" ")[1]), found, content)


class RefusedError(Exception):
    """The hook did not answer 200."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(f"{answer.status}: {answer.body.decode(errors='replace')}")
        self.answer = answer


def place_of(document: Document) -> tuple[str, str, str]:
    """(Kind.apiVersion, namespace, name)"""
    metadata = document["metadata"]
    return f"{document['kind']}.{document['apiVersion']}", metadata.get("namespace", ""), metadata["name"]


class Cluster:
    """Documents, as an API server keeps them: versions, uids, generations, finalizers, deletion in two steps."""

    def __init__(self) -> None:
        self.documents: dict[tuple[str, str, str], Document] = {}
        self.writes: list[str] = []
        self._version = 0
        self._uids = 0

    def all(self, group: str) -> list[Document]:
        return [copy.deepcopy(d) for place, d in sorted(self.documents.items()) if place[0] == group]

    def get(self, group: str, name: str, namespace: str = "") -> Document | None:
        return copy.deepcopy(self.documents.get((group, namespace, name)))

    def create(self, document: Document) -> Document:
        new = copy.deepcopy(document)
        place = place_of(new)
        if place in self.documents:
            raise AssertionError(f"made twice: {place}")
        self._uids += 1
        new["metadata"].update(
            uid=f"00000000-0000-0000-0000-{self._uids:012d}", generation=1, creationTimestamp="2020-01-01T00:00:00Z"
        )
        return self._put("create", place, new)

    def update(self, document: Document) -> Document:
        """Without a change nothing is written; an object that is being deleted goes with its last finalizer."""
        place = place_of(document)
        old, new = self.documents[place], copy.deepcopy(document)
        for name in ("uid", "creationTimestamp", "deletionTimestamp", "generation", "resourceVersion"):
            new["metadata"].pop(name, None)
            if name in old["metadata"]:
                new["metadata"][name] = old["metadata"][name]
        if new == old:
            return copy.deepcopy(old)
        if {k: v for k, v in new.items() if k not in ("metadata", "status")} != {
            k: v for k, v in old.items() if k not in ("metadata", "status")
        }:
            new["metadata"]["generation"] += 1
        if new["metadata"].get("deletionTimestamp") and not new["metadata"].get("finalizers"):
            del self.documents[place]
            self.writes.append(f"gone {place[0].partition('.')[0]} {place[2]}")
            return new
        return self._put("update", place, new)

    def delete(self, group: str, name: str, namespace: str = "") -> None:
        place = group, namespace, name
        document = self.documents[place]
        if not document["metadata"].get("finalizers"):
            del self.documents[place]
            self.writes.append(f"delete {group.partition('.')[0]} {name}")
        elif "deletionTimestamp" not in document["metadata"]:
            document["metadata"]["deletionTimestamp"] = "2020-01-02T00:00:00Z"
            self._put("delete", place, document)

    def _put(self, action: str, place: tuple[str, str, str], document: Document) -> Document:
        self._version += 1
        document["metadata"]["resourceVersion"] = str(self._version)
        self.documents[place] = document
        self.writes.append(f"{action} {place[0].partition('.')[0]} {place[2]}")
        return copy.deepcopy(document)


@dataclass
class Metac:
    """One GenericController: which kind it watches, which it sends along, and where its hooks are."""

    url: str
    name: str
    watch: str  # Kind.apiVersion
    attachments: tuple[str, ...]  # Kind.apiVersion of each
    finalizes: bool = True
    token: str = ""
    trust: ssl.SSLContext | None = None
    answers: list[Document] = field(default_factory=list)

    @property
    def finalizer(self) -> str:
        return f"protect.gctl.metac.openebs.io/default-{self.name}"

    async def settle(self, cluster: Cluster, *, rounds: int = 50) -> None:
        """Every watched object again and again, until nothing changes."""
        for _ in range(rounds):
            before = len(cluster.writes)
            for document in cluster.all(self.watch):
                await self.reconcile(cluster, document["metadata"]["name"], document["metadata"].get("namespace", ""))
            if len(cluster.writes) == before:
                return
        raise AssertionError(f"{self.name} does not come to rest: {cluster.writes[-10:]}")

    async def reconcile(self, cluster: Cluster, name: str, namespace: str) -> Document | None:
        watch = cluster.get(self.watch, name, namespace)
        if watch is None:
            return None
        deleting = "deletionTimestamp" in watch["metadata"]
        finalizers = watch["metadata"].setdefault("finalizers", [])
        if deleting and self.finalizer not in finalizers:
            return None
        if self.finalizes and not deleting and self.finalizer not in finalizers:
            finalizers.append(self.finalizer)
            watch = cluster.update(watch)
        answer = await self.call(cluster, watch, finalizing=deleting)
        self.answers.append(answer)
        if not answer.get("skipReconcile"):
            self.apply(cluster, watch, answer, finalizing=deleting)
        self._write_watch(cluster, watch, answer)
        return answer

    async def call(self, cluster: Cluster, watch: Document, *, finalizing: bool = False) -> Document:
        url = f"{self.url}/{'finalize' if finalizing else 'sync'}/{self.name}"
        body = json.dumps(self.request(cluster, watch, finalizing=finalizing)).encode()
        answer = await post(url, body, token=self.token, trust=self.trust)
        if answer.status != 200:
            raise RefusedError(answer)
        result: Document = answer.json()
        return result

    def request(self, cluster: Cluster, watch: Document, *, finalizing: bool = False) -> Document:
        groups: dict[str, dict[str, Document]] = {group: {} for group in self.attachments}
        for group in self.attachments:
            for document in cluster.all(group):
                _, namespace, name = place_of(document)
                groups[group][f"{namespace}/{name}" if namespace else name] = document
        controller = {"apiVersion": "metac.openebs.io/v1alpha1", "kind": "GenericController"}
        return {
            "controller": {**controller, "metadata": {"name": self.name, "namespace": "default"}, "spec": {}},
            "watch": watch,
            "attachments": groups,
            "finalizing": finalizing,
        }

    def _write_watch(self, cluster: Cluster, watch: Document, answer: Document) -> None:
        new = cluster.get(*_reordered(place_of(watch)))
        if new is None:
            return
        for part in ("labels", "annotations"):
            texts = {**new["metadata"].get(part, {}), **(answer.get(part) or {})}
            texts = {name: text for name, text in texts.items() if text is not None}
            if texts or part in new["metadata"]:
                new["metadata"][part] = texts
        if answer.get("status") is not None:
            new["status"] = answer["status"]
        if answer.get("finalized"):
            new["metadata"]["finalizers"] = [f for f in new["metadata"]["finalizers"] if f != self.finalizer]
        cluster.update(new)

    def apply(self, cluster: Cluster, watch: Document, answer: Document, *, finalizing: bool) -> None:
        uid = watch["metadata"]["uid"]
        wanted = {}
        for document in answer.get("attachments") or ():
            if "namespace" not in document["metadata"] and self._namespaced(cluster, document, watch):
                document["metadata"]["namespace"] = watch["metadata"]["namespace"]
            wanted[place_of(document)] = document
        for group in self.attachments:
            for there in cluster.all(group):
                mine = there["metadata"].get("annotations", {}).get(CREATED_FOR) == uid
                going = "deletionTimestamp" in there["metadata"]
                if mine and not going and place_of(there) not in wanted:
                    cluster.delete(*_reordered(place_of(there)))
        for place, document in wanted.items():
            there_now = cluster.get(*_reordered(place))
            if there_now is None:
                new = copy.deepcopy(document)
                annotations = new["metadata"].setdefault("annotations", {})
                annotations[uid + LAST_APPLIED] = json.dumps(document, sort_keys=True)
                annotations[CREATED_FOR] = uid
                cluster.create(new)
            elif there_now["metadata"].get("annotations", {}).get(CREATED_FOR) == uid:
                self._merge(cluster, there_now, document, uid, finalizing=finalizing)
        for document in answer.get("explicitUpdates") or ():
            there_now = cluster.get(*_reordered(place_of(document)))
            if there_now is not None:
                self._merge(cluster, there_now, document, uid, finalizing=finalizing)
        for document in answer.get("explicitDeletes") or ():
            there_now = cluster.get(*_reordered(place_of(document)))
            if there_now is not None and "deletionTimestamp" not in there_now["metadata"]:
                cluster.delete(*_reordered(place_of(document)))

    def _merge(self, cluster: Cluster, there: Document, wanted: Document, uid: str, *, finalizing: bool) -> None:
        if "deletionTimestamp" in there["metadata"] and not finalizing:
            return
        key = uid + LAST_APPLIED
        last = json.loads(there["metadata"].get("annotations", {}).get(key, "{}"))
        new = merge(there, last, wanted)
        new["metadata"].setdefault("annotations", {})[key] = json.dumps(wanted, sort_keys=True)
        cluster.update(new)

    @staticmethod
    def _namespaced(cluster: Cluster, document: Document, watch: Document) -> bool:
        """By what is known of the kind; a new one follows the watched object."""
        group = place_of(document)[0]
        known = [place for place in cluster.documents if place[0] == group]
        cluster_wide = ("VolumeAttachment", "Node", "PersistentVolume", "StorageClass")
        if document["kind"] in cluster_wide:
            return False
        return bool(known and known[0][1]) or "namespace" in watch["metadata"]


def _reordered(place: tuple[str, str, str]) -> tuple[str, str, str]:
    group, namespace, name = place
    return group, name, namespace


def merge(there: Any, last: Any, wanted: Any) -> Any:
    """Three ways: what is wanted, without what was wanted before, over what is there. Lists are taken whole."""
    if not isinstance(there, dict) or not isinstance(wanted, dict):
        return copy.deepcopy(wanted)
    last = last if isinstance(last, dict) else {}
    result = {name: value for name, value in there.items() if name not in last or name in wanted}
    for name, value in wanted.items():
        result[name] = merge(there[name], last.get(name), value) if name in there else copy.deepcopy(value)
    return result
