"""A selector that names one object or one host looks at no more of the store than it must."""

from quartermaster.resources import Assignment, Host, Lease, StorageClass, kind_of
from quartermaster.stores.objects.keys import kind_range, object_key, selected_range


def covers(found: tuple[str, str], key: str) -> bool:
    return found[0] <= key < found[1]


def test_a_name_is_one_key() -> None:
    found = selected_range(kind_of(Lease), "storage", name="leader", host=None)
    assert covers(found, object_key(kind_of(Lease), "storage", "leader"))
    assert not covers(found, object_key(kind_of(Lease), "storage", "leader2"))
    assert not covers(found, object_key(kind_of(Lease), "storage", "heartbeat.leader"))


def test_a_cluster_scoped_name_is_one_key_whatever_the_namespace() -> None:
    wanted = object_key(kind_of(StorageClass), "", "fast")
    for namespace in (None, ""):
        found = selected_range(kind_of(StorageClass), namespace, name="fast", host=None)
        assert found == (wanted, wanted + "\0")


def test_a_host_is_what_is_its_own() -> None:
    found = selected_range(kind_of(Assignment), "storage", name=None, host="h1")
    assert covers(found, object_key(kind_of(Assignment), "storage", "glusterfs.h1"))
    assert covers(found, object_key(kind_of(Assignment), "storage", "local-pvc-1.h1"))
    assert not covers(found, object_key(kind_of(Assignment), "storage", "glusterfs.h10"))
    assert not covers(found, object_key(kind_of(Assignment), "elsewhere", "glusterfs.h1"))


def test_in_all_namespaces_and_without_a_selector_it_is_everything() -> None:
    for name, host in (("h1", None), (None, "h1"), (None, None)):
        assert selected_range(kind_of(Host), None, name=name, host=host) == kind_range(kind_of(Host), None)
    assert selected_range(kind_of(Host), "a", name=None, host=None) == kind_range(kind_of(Host), "a")
