"""ScaleIO, which is now PowerFlex: its gateway maps a volume to this host's client (SDC), whose device then appears.

Newer storage drivers have mapped the volume before they answer, and say so by naming the client (`sdc_guid`): then
there is only the device to wait for. Else the mapping is made and taken back here, over the gateway's REST interface.

Taking it back needs the credentials again, and a record has no secrets in it: they lie in a file of their own that only
root can read, until the volume is disconnected. With `config_group` they come from the connector's own file each time.
"""

from __future__ import annotations

import base64
import os
from pathlib import Path
from urllib.parse import quote

import msgspec

from quartermaster.connectors.context import Context
from quartermaster.connectors.driver import Found, Route, Settings
from quartermaster.connectors.errors import AuthenticationError, ConnectorError
from quartermaster.connectors.mistakes import Mistakes
from quartermaster.connectors.model import DriverType
from quartermaster.connectors.names import file_name
from quartermaster.connectors.nodes import join_node, leave_node, run_installed
from quartermaster.connectors.properties import SDC_TOOL
from quartermaster.connectors.secret import Secret
from quartermaster.connectors.servers import Answer, Server, ask_http
from quartermaster.host.commands import Command
from quartermaster.host.tools import Tool, register

register(Tool("drv_cfg", "EMC-ScaleIO-sdc, of the storage system", "talks to the ScaleIO client in the kernel"))

CONNECTOR_FILE = "/opt/emc/scaleio/openstack/connector.conf"
# Of the gateway: the second of each pair is what version 4 says.
_MAPPED_ALREADY = (81, 4037)
_NOT_MAPPED = (84, 4039, 78, 79)  # and that there is no such volume any more


class ScaleioConnectionData(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    scale_io_volume_id: str = ""
    scale_io_volname: str = ""
    sdc_guid: str = ""
    server_ip: str = ""
    server_port: int = 443
    server_username: str = ""
    server_password: Secret = Secret()
    server_token: Secret = Secret()
    config_group: str = ""
    config_file: str = CONNECTOR_FILE
    failed_over: bool = False
    verify_certificate: bool = True
    certificate_path: str = ""
    iops_limit: int | None = None
    bandwidth_limit: int | None = None  # KiB a second
    volume_id: str = ""

    def __post_init__(self) -> None:
        wrong = Mistakes()
        if not self.scale_io_volume_id and not self.scale_io_volname:
            wrong.add(
                "scaleIO_volume_id",
                "is missing, and so is scaleIO_volname",
                "one of them has to be there",
                unless=["scaleIO_volname"],
            )
        elif self.sdc_guid and not self.scale_io_volume_id:
            wrong.add("scaleIO_volume_id", "is missing: the device is found by it", "the storage system has to give it")
        if not self.sdc_guid and not self.server_ip:
            missing = "is missing: without sdc_guid the volume has to be mapped through the gateway"
            wrong.add("serverIP", missing, "give that of the gateway, or sdc_guid", unless=["sdc_guid"])
        wrong.tell()


class ScaleioPlace(msgspec.Struct, frozen=True):
    volume: str
    name: str = ""
    mapped: bool = False  # by the storage system, which takes the mapping back too
    server: Server | None = None
    username: str = ""
    config_group: str = ""
    config_file: str = ""
    failed_over: bool = False

    @property
    def thing(self) -> str:
        return f"scaleio {self.volume or self.name}"


class Credentials(msgspec.Struct, frozen=True):
    username: str
    password: str = ""
    token: str = ""


class ScaleioDriver:
    route = Route(DriverType.SCALEIO, ScaleioConnectionData, ScaleioPlace)

    def identify(self, data: ScaleioConnectionData, settings: Settings) -> ScaleioPlace:  # noqa: ARG002
        if data.sdc_guid:
            return ScaleioPlace(data.scale_io_volume_id, mapped=True)
        return ScaleioPlace(
            data.scale_io_volume_id,
            data.scale_io_volname,
            server=Server(data.server_ip, data.server_port, data.verify_certificate, data.certificate_path),
            username=data.server_username,
            config_group=data.config_group,
            config_file=data.config_file if data.config_group else "",
            failed_over=data.failed_over,
        )

    async def attach(self, context: Context, data: ScaleioConnectionData, place: ScaleioPlace) -> Found:
        async def bring() -> None:
            if place.mapped:
                return
            gateway = Gateway(context, place, _keep_credentials(context, data, place))
            guid = await _guid(context)
            # As far as nothing is asked for: a gateway that does not answer here has nothing to take back.
            await gateway.ready()
            volume = place.volume or await gateway.volume_called(place.name)
            context.note(volume=volume, guid=guid)
            try:
                await gateway.map(volume, guid)
            except AuthenticationError:
                # A refused request has mapped nothing, and taking it back would be refused too.
                context.note(guid="")
                raise
            await gateway.limit(volume, guid, data)

        hint = "look whether the volume is mapped to this host's SDC, and whether the SDC reaches the cluster"
        directory = _links(context)
        found = await join_node(
            context, place.thing, lambda: _node(context, place), bring, directory=directory, hint=hint
        )
        return msgspec.structs.replace(found, identity=_identity(context, place))

    async def find(self, context: Context, place: ScaleioPlace) -> Found | None:
        device = _node(context, place) if context.uses(place.thing) else ""
        return Found(device=device, identity=_identity(context, place)) if device else None

    async def detach(self, context: Context, place: ScaleioPlace, *, force: bool) -> None:
        volume = _volume(context, place)
        # A volume that has joined without a note of the client was never asked for.
        asked = bool(context.notes.get("guid")) or not context.uses(place.thing)

        async def take() -> None:
            guid = context.notes.get("guid") or await _guid(context)
            await Gateway(context, place, _kept_credentials(context, place)).unmap(volume, guid)

        if place.mapped or not volume or not asked:
            async with context.leaving(place.thing):
                pass
        else:
            await leave_node(
                context,
                place.thing,
                lambda: _node(context, place),
                take,
                directory=_links(context),
                force=force,
                compare=False,
            )
        context.files.remove(_file(context))

    async def extend(self, context: Context, place: ScaleioPlace) -> None:  # noqa: ARG002
        command = Command(("drv_cfg", "--rescan"), verb="let the SDC look at its volumes again")
        await run_installed(context, command, (SDC_TOOL,))


class Gateway:
    """The REST interface: HTTP's basic authentication with a token, which a login gives for the password."""

    def __init__(self, context: Context, place: ScaleioPlace, credentials: Credentials) -> None:
        if place.server is None:
            raise ConnectorError(f"cannot map {place.thing}: there is no gateway to ask")
        self._context = context
        self._server = place.server
        self._credentials = credentials
        self._token = credentials.token
        context.hide(credentials.password, credentials.token)

    async def ready(self) -> None:
        """With a token, which may have ended by now."""
        if not self._token:
            await self._log_in()

    async def volume_called(self, name: str) -> str:
        # The name goes through two decoders on its way.
        path = f"/api/types/Volume/instances/getByName::{quote(quote(name, safe=''), safe='')}"
        verb = f"find the volume {name}"
        answer = await self._ask("GET", path, verb=verb)
        if answer.status != 200 or not isinstance(answer.json, str) or not answer.json:
            raise _refused(verb, answer)
        return answer.json

    async def map(self, volume: str, guid: str) -> None:
        body = {"guid": guid, "allowMultipleMappings": "TRUE"}
        await self._act(volume, "addMappedSdc", body, verb=f"map the volume {volume}", also=_MAPPED_ALREADY)

    async def unmap(self, volume: str, guid: str) -> None:
        await self._act(volume, "removeMappedSdc", {"guid": guid}, verb=f"unmap the volume {volume}", also=_NOT_MAPPED)

    async def limit(self, volume: str, guid: str, data: ScaleioConnectionData) -> None:
        limits = {"bandwidthLimitInKbps": data.bandwidth_limit, "iopsLimit": data.iops_limit}
        given = {key: str(value) for key, value in limits.items() if value is not None}
        if given:
            verb = f"limit the volume {volume}"
            await self._act(volume, "setMappedSdcLimits", {"guid": guid, **given}, verb=verb, also=())

    async def _act(self, volume: str, action: str, body: dict[str, str], *, verb: str, also: tuple[int, ...]) -> None:
        path = f"/api/instances/Volume::{quote(volume, safe='')}/action/{action}"
        answer = await self._ask("POST", path, msgspec.json.encode(body), verb=verb)
        if answer.status != 200 and _code(answer) not in also:
            raise _refused(verb, answer)

    async def _ask(self, method: str, path: str, body: bytes = b"", *, verb: str) -> Answer:
        await self.ready()
        answer = await self._send(method, path, body, self._token, verb=verb)
        if answer.status in (401, 403):
            await self._log_in()
            answer = await self._send(method, path, body, self._token, verb=verb)
        return answer

    async def _log_in(self) -> None:
        verb = f"log in to the gateway {self._server}"
        if not self._credentials.password:
            raise AuthenticationError(
                f"cannot {verb}: the token is not valid any more, and there is no password",
                hint="give serverPassword, or config_group and the connector's file",
            )
        answer = await self._send("GET", "/api/login", b"", self._credentials.password, verb=verb)
        if answer.status != 200 or not isinstance(answer.json, str):
            if answer.status in (401, 403):
                raise AuthenticationError(
                    f"cannot {verb}: it refuses {self._credentials.username or 'an empty user name'}",
                    hint="look at the user name and the password of the storage system's configuration",
                )
            raise _refused(verb, answer)
        self._token = answer.json
        self._context.hide(self._token)

    async def _send(self, method: str, path: str, body: bytes, secret: str, *, verb: str) -> Answer:
        pair = base64.b64encode(f"{self._credentials.username}:{secret}".encode()).decode()
        headers = {"Authorization": f"Basic {pair}", "Content-Type": "application/json"}
        return await ask_http(self._context, self._server, method, path, headers=headers, body=body, verb=verb)


def _code(answer: Answer) -> int | None:
    body = answer.json
    return body.get("errorCode") if isinstance(body, dict) else None


def _refused(verb: str, answer: Answer) -> ConnectorError:
    body = answer.json if isinstance(answer.json, dict) else {}
    said = str(body.get("message") or "it does not say why")
    return ConnectorError(f"cannot {verb}: the gateway answered with status {answer.status}: {said}")


async def _guid(context: Context) -> str:
    command = Command(("drv_cfg", "--query_guid"), verb="ask for the SDC's GUID", changes=False)
    guid = (await run_installed(context, command, (SDC_TOOL,))).text.strip()
    if not guid:
        raise ConnectorError(
            "cannot map volumes to this host: its SDC has no GUID", hint="look whether scini is loaded"
        )
    return guid


def _keep_credentials(context: Context, data: ScaleioConnectionData, place: ScaleioPlace) -> Credentials:
    if not data.server_password and not data.server_token:
        return _from_connector_file(context, place)
    made = Credentials(data.server_username, data.server_password.reveal(), data.server_token.reveal())
    context.files.write(_file(context), msgspec.json.encode(made))
    return made


def _kept_credentials(context: Context, place: ScaleioPlace) -> Credentials:
    text = context.files.data(_file(context))
    if text:
        return msgspec.json.decode(text, type=Credentials)
    return _from_connector_file(context, place)


def _from_connector_file(context: Context, place: ScaleioPlace) -> Credentials:
    import configparser

    hint = f"give serverPassword, or a [{place.config_group or 'group'}] with san_password in the connector's file"
    if not place.config_group:
        raise AuthenticationError(f"cannot log in to the gateway {place.server}: there is no password", hint=hint)
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(context.files.text(Path(place.config_file)))
        group = parser[place.config_group]
        prefix = "replicating_" if place.failed_over else ""
        return Credentials(group.get(f"{prefix}san_username", place.username), group[f"{prefix}san_password"])
    except (configparser.Error, KeyError):
        # The cause may quote a line with the password.
        raise AuthenticationError(
            f"cannot log in to the gateway {place.server}: {place.config_file} has no password for it", hint=hint
        ) from None


def _volume(context: Context, place: ScaleioPlace) -> str:
    return place.volume or context.notes.get("volume", "")


def _link(context: Context, place: ScaleioPlace) -> str:
    volume = _volume(context, place)
    names = context.files.names(_links(context)) if volume else []
    return next((name for name in names if name.startswith("emc-vol-") and name.endswith(f"-{volume}")), "")


def _node(context: Context, place: ScaleioPlace) -> str:
    link = _link(context, place)
    return os.path.realpath(_links(context) / link) if link else ""


def _identity(context: Context, place: ScaleioPlace) -> str:
    """The link has the cluster's id and the volume's, as the kernel's client told udev."""
    return _link(context, place)


def _links(context: Context) -> Path:
    return context.roots.dev / "disk/by-id"


def _file(context: Context) -> Path:
    return context.directory / "secrets" / file_name(context.volume_id)


DRIVER = ScaleioDriver()
