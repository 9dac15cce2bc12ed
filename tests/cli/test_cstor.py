"""`qm cstor check`, `qm cstor convert` and `qm plan` for cStor clusters, as a person meets them."""

import json
from pathlib import Path

import pytest
import yaml

from quartermaster.cli.cstor import COMMANDS, command
from quartermaster.resources import to_document
from tests.backends.cstor.test_contract import cluster, pool
from tests.backends.cstor.test_convert import FIRST, SECOND, old
from tests.backends.cstor.world import config, device, node
from tests.cli.conftest import Cli


def write(path: Path, *objects: object) -> str:
    documents = [obj if isinstance(obj, dict) else to_document(obj) for obj in objects]  # type: ignore[arg-type]
    path.write_text(yaml.safe_dump_all(documents))
    return str(path)


def test_the_group_says_of_a_command_what_it_says_of_itself() -> None:
    for name, said in COMMANDS.items():
        found = command.get_command(None, name)  # type: ignore[arg-type]
        assert found is not None
        assert found.get_short_help_str(200) == said


def test_a_pool_cluster_that_is_fine_is_said_to_be(cli: Cli, tmp_path: Path) -> None:
    devices = [device(name, "n1") for name in ("a0", "a1")]
    file = write(tmp_path / "pools.yaml", cluster(pool("n1", ["a0", "a1"])), node("n1"), *devices)
    result = cli("cstor", "check", file)
    assert (result.code, result.out) == (0, "pools: 1 pool, fine\n")
    assert "not looked at" not in result.err


def test_what_would_be_refused_is_listed_and_the_exit_code_says_so(cli: Cli, tmp_path: Path) -> None:
    file = write(tmp_path / "pools.yaml", cluster(pool("n1", ["a0", "a1", "a2"]), pool("n1", ["a0", "a3"])))
    result = cli("cstor", "check", file)
    assert result.code == 1
    assert "a mirror group cannot have 3 disks" in result.out
    assert "BlockDevice a0 is at spec.pools[0]" in result.out
    assert "nodes and disks were not looked at" in result.err
    told = json.loads(cli("cstor", "check", file, "-o", "json").out)
    assert told["poolClusters"][0]["accepted"] is False


def test_a_field_that_resembles_a_known_one_is_mentioned(cli: Cli, tmp_path: Path) -> None:
    given = cluster({**pool("n1", ["a0", "a1"]), "nodeSelectors": {}, "anotherProgram": {}})
    result = cli("cstor", "check", write(tmp_path / "pools.yaml", given))
    assert result.code == 0
    assert 'spec.pools[0].nodeSelectors: unknown field (did you mean "nodeSelector"?)' in result.err
    assert "anotherProgram" not in result.err


def test_a_change_is_checked_against_what_there_is(cli: Cli, tmp_path: Path) -> None:
    before = write(tmp_path / "old.yaml", cluster(pool("n1", ["a0", "a1"])))
    after = write(tmp_path / "new.yaml", cluster(pool("n1", ["a2", "a3"])))
    result = cli("cstor", "check", after, "--against", before)
    assert result.code == 1
    assert "cannot be removed: a group stays for ever" in result.out
    cli("apply", "-f", before)
    assert "cannot be removed: a group stays for ever" in cli("cstor", "check", after, "--live").out
    assert cli("cstor", "check", after, "--live", "--against", before).code == 2


def test_a_store_with_nothing_to_check_against_is_told(cli: Cli, tmp_path: Path) -> None:
    result = cli("cstor", "check", write(tmp_path / "pools.yaml", cluster(pool("n1", ["a0", "a1"]))), "--live")
    assert (result.code, result.out) == (1, "")
    assert "cannot check against the store: it has neither nodes nor block devices nor pool clusters" in result.err


def test_a_file_without_a_pool_cluster_is_told(cli: Cli, tmp_path: Path) -> None:
    result = cli("cstor", "check", write(tmp_path / "node.yaml", node("n1")))
    assert result.code == 2
    assert "cannot find a CStorPoolCluster" in result.err


def test_an_old_declaration_is_converted_and_can_be_applied(cli: Cli, tmp_path: Path) -> None:
    file = write(tmp_path / "old.yaml", old(FIRST, {**SECOND, "diskCount": 4}))
    result = cli("cstor", "convert", file)
    assert result.code == 0
    assert "note: old: diskCount differs between the pools" in result.err
    new = tmp_path / "new.yaml"
    new.write_text(result.out)
    assert cli("apply", "-f", str(new)).code == 0
    assert json.loads(cli("cstor", "convert", file, "-o", "json").out)["kind"] == "CStorClusterConfig"


def test_what_is_no_old_declaration_is_told(cli: Cli, tmp_path: Path) -> None:
    result = cli("cstor", "convert", write(tmp_path / "node.yaml", node("n1")))
    assert result.code == 2
    assert "cannot find a CSPCAuto" in result.err


SELECTED = {"nodeSelectorTerms": [{"matchLabels": {"pools": "yes"}}]}


def declared(**spec: object) -> object:
    document = to_document(config(**spec))
    document["metadata"] = {"name": "pools"}
    return document


def test_a_plan_names_the_nodes_the_groups_and_why_no_other(cli: Cli, tmp_path: Path) -> None:
    nodes = [node("n1", zone="a", pools="yes"), node("n2", zone="b", pools="yes", ready=False), node("n3")]
    spec = {"allowedNodes": SELECTED, "poolConfig": {"raidType": "mirror"}}
    file = write(tmp_path / "config.yaml", declared(**spec), *nodes)
    result = cli("plan", "-f", file)
    assert result.code == 0
    assert "pools: 2 to 4, mirror in groups of 2" in result.out
    lines = {line.split()[0]: line for line in result.out.splitlines() if line.strip()}
    assert "it is not ready" in lines["n2"]
    assert "it fits none of the allowedNodes terms" in lines["n3"]
    assert "2 disks of 100Gi will be made from class fast: 200Gi in all" in result.out
    assert "1 more node is needed" in result.out
    assert cli("get", "cscconfig").out == ""
    data = json.loads(cli("plan", "-f", file, "-o", "json").out)
    assert [entry["name"] for entry in data["chosen"]] == ["n1"]
    assert data["chosen"][0]["groups"] == [["new 100Gi of fast", "new 100Gi of fast"]]


def test_a_plan_shows_which_existing_disks_are_taken(cli: Cli, tmp_path: Path) -> None:
    disks = [device(f"d{number}", "n1") for number in range(3)]
    spec = declared(diskConfig={"local": {}}, poolConfig={"raidType": "mirror"})
    file = write(tmp_path / "config.yaml", spec, node("n1"), node("n2"), *disks, device("e0", "n2"))
    result = cli("plan", "-f", file, "-o", "wide")
    assert "d0 d1" in result.out
    assert "it has too few free disks that fit: 1, and a pool needs 2" in result.out
    assert "1 more disk of at least 100Gi would make n2 usable" in result.out


def test_a_declaration_with_mistakes_is_not_planned(cli: Cli, tmp_path: Path) -> None:
    file = write(tmp_path / "config.yaml", declared(diskConfig={"minCount": 3}, poolConfig={"raidType": "mirror"}))
    result = cli("plan", "-f", file)
    assert result.code == 1
    assert "says neither where disks come from nor which to use" in result.out
    assert "use 2 or 4" in result.out


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_a_plan_is_the_same_each_time(cli: Cli, tmp_path: Path, form: str) -> None:
    file = write(tmp_path / "config.yaml", declared(), *(node(f"n{i}") for i in range(9)))
    assert cli("plan", "-f", file, "-o", form).out == cli("plan", "-f", file, "-o", form).out
