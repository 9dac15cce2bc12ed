"""Server-side apply and ownership of fields, rule by rule. The judge of these rules is test_apply_judge.py."""

from typing import Any

import pytest

from quartermaster.stores.objects.apply import apply_document, track_update
from quartermaster.stores.objects.fields import FieldSet, paths, spell
from quartermaster.support.errors import ApplyConflictError, FieldConflict, InvalidError

Document = dict[str, Any]
TEXT = {"type": "string"}
CONDITION = {"type": "object", "properties": {"type": TEXT, "status": TEXT, "reason": TEXT}}
PORT = {"type": "object", "properties": {"port": {"type": "integer"}, "protocol": {**TEXT, "default": "TCP"}}}
PART: Document = {
    "type": "object",
    "properties": {
        "zone": {"type": "integer"},
        "name": TEXT,
        "devices": {"type": "array", "items": TEXT},
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": TEXT},
        "ports": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["port", "protocol"],
            "items": PORT,
        },
        "conditions": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
            "items": CONDITION,
        },
        "options": {"type": "object", "additionalProperties": TEXT},
        "affinity": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"a": TEXT, "b": TEXT}},
        "either": {"x-kubernetes-int-or-string": True},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "maybe": {**TEXT, "nullable": True},
    },
}
SCHEMA = {"type": "object", "properties": {"spec": PART, "status": PART}}
FIRST, SECOND, THIRD = (f"2026-01-01T00:00:0{number}Z" for number in (1, 2, 3))
VERSION = "test/v1"


def document(metadata: Document | None = None, **parts: Any) -> Document:
    return {"apiVersion": VERSION, "kind": "Thing", "metadata": {"name": "a", **(metadata or {})}, **parts}


def apply(live: Document | None, applied: Document, manager: str = "ann", **options: Any) -> Document:
    settings: Document = {"force": False, "now": FIRST, "api_version": VERSION, **options}
    return apply_document(SCHEMA, live, applied, manager=manager, **settings)


def update(live: Document | None, new: Document, manager: str = "bob", **options: Any) -> Document:
    settings: Document = {"now": FIRST, "api_version": VERSION, **options}
    return track_update(SCHEMA, live, new, manager=manager, **settings)


def changed(live: Document, **parts: Any) -> Document:
    return {**live, **parts}


def entries(live: Document) -> list[Document]:
    return live["metadata"].get("managedFields", [])


def entry(live: Document, manager: str, operation: str = "Apply", subresource: str = "") -> Document:
    (found,) = [
        one
        for one in entries(live)
        if (one["manager"], one["operation"], one.get("subresource", "")) == (manager, operation, subresource)
    ]
    return found


def owned(live: Document, manager: str, operation: str = "Apply", subresource: str = "") -> list[str]:
    fields: FieldSet = entry(live, manager, operation, subresource)["fieldsV1"]
    return [spell(path) for path in paths(fields)]


def owners(live: Document) -> list[tuple[str, str]]:
    return [(one["manager"], one["operation"]) for one in entries(live)]


class TestWhatAnApplierOwns:
    def test_the_leaves_that_it_states(self) -> None:
        live = apply(None, document({"labels": {"a": "1"}}, spec={"zone": 1, "options": {"x": "y"}}))
        assert owned(live, "ann") == [".metadata.labels.a", ".spec.options.x", ".spec.zone"]

    def test_an_entry_says_who_when_and_in_which_version(self) -> None:
        assert entries(apply(None, document(spec={"zone": 1}))) == [
            {
                "manager": "ann",
                "operation": "Apply",
                "apiVersion": VERSION,
                "time": FIRST,
                "fieldsType": "FieldsV1",
                "fieldsV1": {"f:spec": {"f:zone": {}}},
            }
        ]

    def test_not_what_the_store_sets(self) -> None:
        assert entries(apply(None, document({"namespace": "b"}))) == []

    def test_a_list_without_a_type_as_a_whole(self) -> None:
        assert owned(apply(None, document(spec={"devices": ["a", "b"]})), "ann") == [".spec.devices"]

    def test_an_atomic_map_as_a_whole(self) -> None:
        assert owned(apply(None, document(spec={"affinity": {"a": "1"}})), "ann") == [".spec.affinity"]

    def test_the_items_of_a_set(self) -> None:
        assert owned(apply(None, document(spec={"tags": ["b", "a"]})), "ann") == [
            '.spec.tags[="a"]',
            '.spec.tags[="b"]',
        ]

    def test_the_items_of_a_keyed_list_and_their_fields(self) -> None:
        live = apply(None, document(spec={"conditions": [{"type": "Ready", "status": "True"}]}))
        ready = '.spec.conditions[type="Ready"]'
        assert owned(live, "ann") == [ready, f"{ready}.status", f"{ready}.type"]

    def test_an_item_with_the_default_of_a_key(self) -> None:
        live = apply(None, document(spec={"ports": [{"port": 80}]}))
        assert owned(live, "ann")[0] == '.spec.ports[port=80,protocol="TCP"]'

    def test_an_empty_map_but_not_an_empty_list_of_items(self) -> None:
        assert owned(apply(None, document(spec={"options": {}, "tags": []})), "ann") == [".spec.options"]

    def test_a_null_where_null_is_a_value(self) -> None:
        assert owned(apply(None, document(spec={"maybe": None})), "ann") == [".spec.maybe"]

    def test_what_is_below_an_untyped_object(self) -> None:
        live = apply(None, document(spec={"free": {"a": {"b": [1]}}}))
        assert owned(live, "ann") == [".spec.free.a", ".spec.free.a.b"]

    def test_an_owner_reference_as_a_whole_by_its_uid(self) -> None:
        reference = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}
        live = apply(None, document({"ownerReferences": [reference], "finalizers": ["x/y"]}))
        assert owned(live, "ann") == ['.metadata.finalizers[="x/y"]', '.metadata.ownerReferences[uid="u"]']


class TestConflicts:
    def test_another_value_for_a_field_that_somebody_owns_is_a_conflict(self) -> None:
        live = apply(None, document(spec={"zone": 1, "name": "x"}))
        with pytest.raises(ApplyConflictError) as caught:
            apply(live, document(spec={"zone": 2, "name": "x"}), "bob")
        assert caught.value.conflicts == (FieldConflict("ann", ".spec.zone"),)

    def test_the_error_names_the_field_and_what_to_do(self) -> None:
        live = apply(None, document(spec={"zone": 1}))
        with pytest.raises(
            ApplyConflictError, match=r'cannot apply thing "a": \.spec\.zone \(owned by "ann"\); .*force'
        ):
            apply(live, document(spec={"zone": 2}), "bob")

    def test_the_same_value_makes_two_owners(self) -> None:
        live = apply(apply(None, document(spec={"zone": 1})), document(spec={"zone": 1}), "bob")
        assert owned(live, "ann") == owned(live, "bob") == [".spec.zone"]

    def test_an_owner_that_changed_nothing_has_no_time(self) -> None:
        live = apply(apply(None, document(spec={"zone": 1})), document(spec={"zone": 1}), "bob", now=SECOND)
        assert "time" not in entry(live, "bob")
        assert owners(live) == [("bob", "Apply"), ("ann", "Apply")]

    def test_force_takes_the_field_from_the_others(self) -> None:
        live = apply(None, document(spec={"zone": 1, "name": "x"}))
        live = apply(live, document(spec={"zone": 2}), "bob", force=True)
        assert live["spec"] == {"zone": 2, "name": "x"}
        assert owned(live, "ann") == [".spec.name"]
        assert owned(live, "bob") == [".spec.zone"]

    def test_an_owner_that_is_left_with_nothing_is_gone(self) -> None:
        live = apply(apply(None, document(spec={"zone": 1})), document(spec={"zone": 2}), "bob", force=True)
        assert owners(live) == [("bob", "Apply")]

    def test_an_updater_owns_against_an_applier_too(self) -> None:
        live = update(None, document(spec={"zone": 1}))
        with pytest.raises(ApplyConflictError) as caught:
            apply(live, document(spec={"zone": 2}))
        assert caught.value.conflicts == (FieldConflict("bob", ".spec.zone"),)

    def test_a_manager_is_in_its_own_way_when_it_both_updates_and_applies(self) -> None:
        live = update(None, document(spec={"zone": 1}), "ann")
        with pytest.raises(ApplyConflictError):
            apply(live, document(spec={"zone": 2}), "ann")

    def test_what_nobody_owns_can_be_changed_by_anybody(self) -> None:
        live = apply(None, document(spec={"name": "x"}))
        live["spec"]["zone"] = 7  # filled in as a default
        assert apply(live, document(spec={"zone": 2}), "bob")["spec"] == {"name": "x", "zone": 2}

    def test_items_of_a_keyed_list_are_apart(self) -> None:
        live = apply(None, document(spec={"conditions": [{"type": "A", "status": "1"}]}))
        live = apply(live, document(spec={"conditions": [{"type": "B", "status": "2"}]}), "bob")
        with pytest.raises(ApplyConflictError) as caught:
            apply(live, document(spec={"conditions": [{"type": "A", "status": "3"}]}), "bob")
        assert caught.value.conflicts == (FieldConflict("ann", '.spec.conditions[type="A"].status'),)

    def test_a_number_is_not_a_truth(self) -> None:
        live = apply(None, document(spec={"free": {"a": 1}}))
        with pytest.raises(ApplyConflictError):
            apply(live, document(spec={"free": {"a": True}}), "bob")


class TestWhatAnApplyRemoves:
    def test_what_it_stated_before_and_does_not_state_now(self) -> None:
        live = apply(None, document({"labels": {"a": "1", "b": "2"}}, spec={"zone": 1, "name": "x"}))
        live = apply(live, document({"labels": {"b": "2"}}, spec={"name": "x"}))
        assert live["spec"] == {"name": "x"}
        assert live["metadata"]["labels"] == {"b": "2"}

    def test_not_what_another_owns_as_well(self) -> None:
        live = apply(apply(None, document(spec={"zone": 1})), document(spec={"zone": 1}), "bob")
        live = apply(live, document(spec={}))
        assert live["spec"] == {"zone": 1}
        assert owned(live, "bob") == [".spec.zone"]

    def test_not_what_nobody_owns(self) -> None:
        live = apply(None, document(spec={"name": "x"}))
        live["spec"]["zone"] = 7
        assert apply(live, document(spec={"name": "y"}))["spec"] == {"name": "y", "zone": 7}

    def test_an_item_of_a_keyed_list(self) -> None:
        both = [{"type": "A", "status": "1"}, {"type": "B", "status": "2"}]
        live = apply(None, document(spec={"conditions": both}))
        assert apply(live, document(spec={"conditions": both[1:]}))["spec"] == {"conditions": both[1:]}

    def test_of_an_item_only_its_own_fields_when_others_own_some(self) -> None:
        live = apply(None, document(spec={"name": "x", "conditions": [{"type": "A", "status": "1"}]}))
        live = apply(live, document(spec={"conditions": [{"type": "A", "reason": "r"}]}), "bob")
        live = apply(live, document(spec={"name": "x"}))
        assert live["spec"]["conditions"] == [{"type": "A", "reason": "r"}]

    def test_an_item_of_a_set(self) -> None:
        live = apply(None, document(spec={"tags": ["a", "b"]}))
        live = apply(live, document(spec={"tags": ["c"]}), "bob")
        assert apply(live, document(spec={"tags": ["b"]}))["spec"]["tags"] == ["b", "c"]

    def test_everything_when_it_states_nothing_any_more(self) -> None:
        live = apply(apply(None, document(spec={"zone": 1})), document())
        assert live == document()

    def test_what_it_left_to_an_updater_stays(self) -> None:
        live = apply(None, document(spec={"zone": 1, "name": "x"}))
        live = update(live, changed(live, spec={"zone": 2, "name": "x"}))
        assert apply(live, document(spec={"name": "x"}))["spec"] == {"zone": 2, "name": "x"}


class TestOrder:
    def test_items_take_the_order_of_the_applied_list(self) -> None:
        live = apply(None, document(spec={"tags": ["a", "b", "c"]}))
        assert apply(live, document(spec={"tags": ["c", "b", "a"]}))["spec"]["tags"] == ["c", "b", "a"]

    def test_items_of_others_stay_where_they_were_among_the_rest(self) -> None:
        live = update(None, document(spec={"tags": ["x", "a", "y", "b", "z"]}))
        live = apply(live, document(spec={"tags": ["b", "new", "a"]}))
        assert live["spec"]["tags"] == ["x", "y", "b", "z", "new", "a"]

    def test_entries_stand_by_operation_time_and_manager(self) -> None:
        live = update(None, document(spec={"name": "x"}), "zoe", now=FIRST)
        live = update(live, changed(live, spec={"name": "x", "zone": 1}), "amy", now=FIRST)
        live = apply(live, document(spec={"devices": []}), "ann", now=THIRD)
        live = apply(live, document(spec={"tags": ["a"]}), "bob", now=SECOND)
        assert owners(live) == [("bob", "Apply"), ("ann", "Apply"), ("amy", "Update"), ("zoe", "Update")]


class TestAnApplyThatSaysNothingNew:
    def test_changes_nothing_not_even_the_time(self) -> None:
        applied = document({"labels": {"a": "1"}}, spec={"zone": 1, "tags": ["b", "a"]})
        live = apply(None, applied, now=FIRST)
        assert apply(live, applied, now=SECOND) == live

    def test_neither_when_it_states_a_status_that_it_cannot_reach(self) -> None:
        live = apply(None, document(spec={"zone": 1}), now=FIRST)
        assert apply(live, document(spec={"zone": 1}, status={"zone": 5}), now=SECOND) == live

    def test_one_that_states_less_is_a_change_of_owners(self) -> None:
        live = apply(None, document(spec={"zone": 1, "name": "x"}), now=FIRST)
        live = apply(live, document(spec={"zone": 1, "name": "x"}), "bob", now=FIRST)
        live = apply(live, document(spec={"zone": 1}), now=SECOND)
        assert live["spec"] == {"zone": 1, "name": "x"}
        assert (owned(live, "ann"), entry(live, "ann")["time"]) == ([".spec.zone"], FIRST)


class TestStatus:
    def test_an_apply_to_the_object_does_not_reach_the_status(self) -> None:
        live = apply(None, document(spec={"zone": 1}, status={"zone": 2}))
        assert "status" not in live
        assert owned(live, "ann") == [".spec.zone"]

    def test_an_apply_to_the_status_reaches_nothing_else(self) -> None:
        live = apply(None, document(spec={"zone": 1}))
        wanted = document({"labels": {"a": "1"}}, spec={"zone": 9}, status={"zone": 2})
        live = apply(live, wanted, subresource="status")
        assert (live["spec"], live["status"]) == ({"zone": 1}, {"zone": 2})
        assert "labels" not in live["metadata"]
        assert owned(live, "ann", subresource="status") == [".status.zone"]

    def test_the_same_manager_has_an_entry_for_each(self) -> None:
        live = apply(None, document(spec={"zone": 1}))
        live = apply(live, document(status={"zone": 2}), subresource="status")
        assert [one.get("subresource", "") for one in entries(live)] == ["", "status"]

    def test_an_update_of_the_status_looks_at_nothing_else(self) -> None:
        live = update(None, document(spec={"zone": 1}))
        new = changed(live, spec={"zone": 5}, status={"conditions": [{"type": "Ready", "status": "True"}]})
        ready = '.status.conditions[type="Ready"]'
        assert owned(update(live, new, "agent", subresource="status"), "agent", "Update", "status") == [
            ".status",
            ".status.conditions",
            ready,
            f"{ready}.status",
            f"{ready}.type",
        ]


class TestUpdates:
    def test_who_creates_owns_all_of_it(self) -> None:
        live = update(None, document({"labels": {"a": "1"}}, spec={"zone": 1}))
        labels = ".metadata.labels"
        assert owned(live, "bob", "Update") == [labels, f"{labels}.a", ".spec", ".spec.zone"]

    def test_who_changes_a_field_owns_it_alone(self) -> None:
        live = apply(None, document(spec={"zone": 1, "name": "x"}))
        live = update(live, changed(live, spec={"zone": 2, "name": "x"}), now=SECOND)
        assert owned(live, "ann") == [".spec.name"]
        assert owned(live, "bob", "Update") == [".spec.zone"]
        assert entry(live, "bob", "Update")["time"] == SECOND

    def test_who_writes_a_field_as_it_is_does_not_own_it(self) -> None:
        live = apply(None, document(spec={"zone": 1}))
        assert owners(update(live, changed(live, spec={"zone": 1}))) == [("ann", "Apply")]

    def test_a_removed_field_leaves_all_its_owners(self) -> None:
        live = apply(None, document(spec={"zone": 1, "name": "x"}))
        live = apply(live, document(spec={"zone": 1}), "cat")
        live = update(live, changed(live, spec={"name": "x"}))
        assert owners(live) == [("ann", "Apply")]
        assert owned(live, "ann") == [".spec.name"]

    def test_an_updater_keeps_what_it_had(self) -> None:
        live = update(None, document(spec={"zone": 1}))
        live = update(live, changed(live, spec={"zone": 1, "name": "x"}))
        assert owned(live, "bob", "Update") == [".spec", ".spec.name", ".spec.zone"]

    def test_an_update_that_changes_nothing_changes_no_owner(self) -> None:
        live = update(None, document(spec={"zone": 1}), now=FIRST)
        assert update(live, changed(live), "cat", now=SECOND) == live

    def test_an_empty_list_of_items_is_owned_by_who_puts_it_there(self) -> None:
        live = update(None, document(spec={"tags": []}))
        assert owned(live, "bob", "Update") == [".spec", ".spec.tags"]

    def test_an_updater_without_a_name_is_unknown(self) -> None:
        assert owners(update(None, document(spec={"zone": 1}), "")) == [("unknown", "Update")]

    def test_the_eleventh_updater_lays_the_two_oldest_together(self) -> None:
        live = update(None, document(spec={"options": {"k0": "1"}}), "m0", now="2026-01-01T00:00:00Z")
        for number in range(1, 11):
            options = {**live["spec"]["options"], f"k{number}": "1"}
            now = f"2026-01-01T00:00:{number:02}Z"
            live = update(live, changed(live, spec={"options": options}), f"m{number}", now=now)
        assert [manager for manager, _ in owners(live)] == ["ancient-changes", *(f"m{n}" for n in range(2, 11))]
        assert ".spec.options.k1" in owned(live, "ancient-changes", "Update")
        assert entry(live, "ancient-changes", "Update")["time"] == "2026-01-01T00:00:01Z"

    def test_fields_that_a_newer_version_wrote_are_owned_too(self) -> None:
        live = update(None, document(spec={"zone": 1, "invented": {"later": [1]}}))
        later = ".spec.invented"
        assert owned(live, "bob", "Update") == [".spec", later, f"{later}.later", ".spec.zone"]


class TestTheRecordItself:
    def test_an_object_without_a_record_belongs_to_nobody_in_particular(self) -> None:
        live = document({"labels": {"a": "1"}}, spec={"zone": 1}, status={"zone": 2})
        live = apply(live, document(spec={"zone": 1}), now=SECOND)
        labels = ".metadata.labels"
        assert owned(live, "before-first-apply", "Update") == [labels, f"{labels}.a", ".spec", ".spec.zone"]
        assert owned(live, "ann") == [".spec.zone"]

    def test_an_update_begins_no_record(self) -> None:
        live = document(spec={"zone": 1})
        assert update(live, changed(live, spec={"zone": 2})) == document(spec={"zone": 2})

    def test_one_empty_entry_ends_it(self) -> None:
        live = apply(None, document(spec={"zone": 1}))
        assert update(live, document({"managedFields": [{}]}, spec={"zone": 1})) == document(spec={"zone": 1})

    def test_an_update_without_it_keeps_it(self) -> None:
        live = apply(None, document(spec={"zone": 1}))
        assert entries(update(live, document(spec={"zone": 1}))) == entries(live)

    def test_an_update_may_change_it(self) -> None:
        live = apply(apply(None, document(spec={"zone": 1})), document(spec={"zone": 1}), "cat")
        new = document({"managedFields": entries(live)[:1]}, spec={"zone": 1})
        assert owners(update(live, new)) == [("cat", "Apply")]

    @pytest.mark.parametrize("sent", [[{"manager": "x"}], [{"operation": "Apply", "apiVersion": "v"}], ["x"], 5])
    def test_one_that_cannot_be_read_does_not_count(self, sent: Any) -> None:
        live = apply(None, document(spec={"zone": 1}))
        assert entries(update(live, document({"managedFields": sent}, spec={"zone": 1}))) == entries(live)

    def test_an_update_of_the_status_cannot_change_it(self) -> None:
        live = apply(None, document(spec={"zone": 1}))
        new = document({"managedFields": [{}]}, spec={"zone": 1})
        assert entries(update(live, new, subresource="status")) == entries(live)

    def test_functions_change_none_of_their_arguments(self) -> None:
        applied, again = (document(spec={"tags": ["a"], "zone": zone}) for zone in (1, 2))
        live = apply(None, applied)
        before = repr((live, again))
        update(live, changed(apply(live, again), spec={"tags": ["b"]}))
        assert repr((live, again)) == before
        assert applied == document(spec={"tags": ["a"], "zone": 1})


class TestItemsThatAreThereTwice:
    TWICE = document(spec={"tags": ["a", "b", "a"]})

    def test_an_update_that_brings_them_owns_them_as_one(self) -> None:
        live = update(None, self.TWICE)
        assert owned(live, "bob", "Update") == [".spec", ".spec.tags", '.spec.tags[="a"]', '.spec.tags[="b"]']

    def test_they_stay_when_somebody_applies_something_else(self) -> None:
        live = apply(update(None, self.TWICE), document(spec={"tags": ["c"]}))
        assert live["spec"]["tags"] == ["a", "b", "a", "c"]

    def test_an_applied_one_replaces_both(self) -> None:
        twice = [{"type": "A", "status": "1"}, {"type": "A", "status": "2"}]
        live = update(None, document(spec={"conditions": twice}))
        live = apply(live, document(spec={"conditions": [{"type": "A", "reason": "r"}]}), force=True)
        assert live["spec"]["conditions"] == [{"type": "A", "reason": "r"}]

    def test_they_cannot_be_applied(self) -> None:
        with pytest.raises(InvalidError, match=r'\.spec\.tags\[="a"\]: is there more than once'):
            apply(None, self.TWICE)


class TestWhatCannotBeApplied:
    @pytest.mark.parametrize(
        ("spec", "problem"),
        [
            ({"zone": "1"}, r"\.spec\.zone: must be a number, not '1'"),
            ({"zone": True}, r"\.spec\.zone: must be a number"),
            ({"name": 1}, r"\.spec\.name: must be a string"),
            ({"devices": {}}, r"\.spec\.devices: must be a list, not an object"),
            ({"options": []}, r"\.spec\.options: must be an object, not a list"),
            ({"conditions": [{"status": "1"}]}, r"\.spec\.conditions\[0\]: must be an object with the key type"),
            ({"tags": [None]}, r"\.spec\.tags\[0\]: must be a scalar"),
            ({"unheard": 1}, r"\.spec\.unheard: is not a field of the schema"),
        ],
    )
    def test_what_does_not_fit_the_schema(self, spec: Document, problem: str) -> None:
        with pytest.raises(InvalidError, match=problem):
            apply(None, document(spec=spec))

    def test_all_mistakes_are_named_at_once(self) -> None:
        with pytest.raises(InvalidError) as caught:
            apply(None, document(spec={"zone": "1", "name": 1}))
        assert [problem.path for problem in caught.value.problems] == [".spec.zone", ".spec.name"]

    def test_a_record_of_owners(self) -> None:
        with pytest.raises(InvalidError, match=r"managedFields: must not be set in an apply"):
            apply(None, document({"managedFields": []}))

    def test_anything_without_the_name_of_a_manager(self) -> None:
        with pytest.raises(InvalidError, match="manager: is missing"):
            apply(None, document(spec={"zone": 1}), "")
