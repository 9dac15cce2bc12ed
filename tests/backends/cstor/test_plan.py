"""Which nodes hold pools, case by case; the workflows and the properties are tested beside this."""

from quartermaster.backends.cstor.devices import criteria_of
from quartermaster.backends.cstor.inventory import Inventory
from quartermaster.backends.cstor.plan import Ground, choose, refusal
from quartermaster.backends.cstor.view import Slot
from quartermaster.planning.nodes import fits, spread
from quartermaster.resources.agility import NodeRequirement, NodeSelectorTerm, PlanNode
from tests.backends.cstor.test_settings import settings
from tests.backends.cstor.world import OPENEBS, device, node, replace


def ground(inventory: Inventory, **given: object) -> Ground:
    return Ground(settings(**given), inventory)


def test_nodes_are_spread_over_zones_first() -> None:
    candidates = [("a1", "a", 0), ("a2", "a", 0), ("b1", "b", 0), ("c1", "c", 0)]
    assert list(spread(candidates, [], 3)) == ["a1", "b1", "c1"]
    assert list(spread(candidates, ["b", "c"], 2)) == ["a1", "a2"]
    assert list(spread(candidates, ["a"], 5)) == ["b1", "c1", "a1", "a2"]


def test_in_a_zone_the_most_free_disks_decide_then_the_name() -> None:
    candidates = [("a", "z", 1), ("b", "z", 3), ("c", "z", 3)]
    assert list(spread(candidates, [], 3)) == ["b", "c", "a"]


def test_terms_are_alternatives_and_all_of_a_term_must_hold() -> None:
    labels, annotations = {"a": "1", "b": "2"}, {"x": "y"}
    assert fits((), labels, annotations)
    assert fits((NodeSelectorTerm(match_labels={"a": "0"}), NodeSelectorTerm(match_labels={"b": "2"})), labels, {})
    assert fits((NodeSelectorTerm(match_labels={"a": "1"}, match_annotations={"x": "y"}),), labels, annotations)
    assert not fits((NodeSelectorTerm(match_labels={"a": "1"}, match_annotations={"x": "z"}),), labels, annotations)
    exists = NodeRequirement(key="c", operator="Exists")
    assert not fits((NodeSelectorTerm(match_labels={"a": "1"}, match_expressions=(exists,)),), labels, annotations)
    assert fits((NodeSelectorTerm(match_expressions=(NodeRequirement("b", "Gt", ("1",)),)),), labels, annotations)


def test_the_reason_why_a_node_cannot_be_chosen_is_told() -> None:
    tainted = node("tainted")
    tainted = replace(
        tainted, spec=replace(tainted.spec, taints=(_taint("gpu", "NoSchedule"), _taint("x", "PreferNoSchedule")))
    )
    nodes = [node("fine"), node("cordoned", cordoned=True), node("unready", ready=False), tainted]
    inventory = Inventory(nodes)
    found = {name: refusal(facts, ground(inventory)) for name, facts in inventory.nodes.items()}
    assert found == {
        "fine": "",
        "cordoned": "it is cordoned",
        "unready": "it is not ready",
        "tainted": "its taint gpu:NoSchedule is not tolerated",
    }
    tolerant = ground(inventory, poolConfig={"tolerations": [{"key": "gpu", "operator": "Exists"}]})
    assert refusal(inventory.nodes["tainted"], tolerant) == ""


def _taint(key: str, effect: str):  # type: ignore[no-untyped-def]
    from quartermaster.resources.kubernetes.core import Taint

    return Taint(key=key, effect=effect)


def test_existing_disks_that_cannot_be_had_do_not_count() -> None:
    criteria = criteria_of(OPENEBS, "ours", 100 * 2**30, None)
    inventory = Inventory(
        [
            node("n"),
            device("free", "n"),
            device("ours", "n", labels={"dao.mayadata.io/cstorclusterconfig-uid": "ours"}),
            device("theirs", "n", labels={"dao.mayadata.io/cstorclusterconfig-uid": "theirs"}),
            device("made", "n", labels={"dao.mayadata.io/storage-uid": "u"}),
            device("claimed", "n", claim="Claimed"),
            device("released", "n", claim="Released"),
            device("small", "n", 99),
            device("formatted", "n", file_system="xfs"),
            device("pool", "n", file_system="zfs_member"),
            device("dead", "n", state="Inactive"),
            device("tagged", "n", labels={"openebs.io/block-device-tag": "x"}),
            device("elsewhere", "m"),
        ]
    )
    assert inventory.free_on("n", criteria) == 2


def test_the_newest_is_the_last_of_the_plan_whatever_its_slot() -> None:
    inventory = Inventory([node(name) for name in "bcd"])
    planned = [PlanNode(name=name, uid=f"uid-{name}", slot=slot) for name, slot in (("b", 1), ("c", 2), ("d", 0))]
    slots = [Slot(entry.slot or 0, entry, entry.name) for entry in planned]
    choice = choose(slots, ground(inventory, minPoolCount=1, maxPoolCount=2))
    assert [entry.name for entry in choice.nodes] == ["b", "c"]


def test_an_empty_plan_of_no_nodes_misses_all_of_them() -> None:
    choice = choose((), ground(Inventory(), minPoolCount=3))
    assert choice.nodes == ()
    assert choice.missing == 3


def test_the_inventory_follows_changes_without_being_asked_to_count_again() -> None:
    terms = (NodeSelectorTerm(match_labels={"pools": "yes"}),)
    criteria = criteria_of(OPENEBS, "ours", 0, None)
    inventory = Inventory([node("a", pools="yes"), node("b"), device("d", "a")])
    assert list(inventory.allowed(terms)) == ["a"]
    assert inventory.free_on("a", criteria) == 1
    assert inventory.put(node("b", pools="yes"))
    assert not inventory.put(node("b", pools="yes"))
    assert sorted(inventory.allowed(terms)) == ["a", "b"]
    inventory.remove(node("a"))
    assert list(inventory.allowed(terms)) == ["b"]
    inventory.put(device("d", "b"))
    assert (inventory.free_on("a", criteria), inventory.free_on("b", criteria)) == (0, 1)
    inventory.remove(device("d", "b"))
    assert inventory.free_on("b", criteria) == 0
