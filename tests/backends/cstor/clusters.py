"""Clusters that have come to their pools, and what befalls them, for tests of the rules alone."""

from tests.backends.cstor.world import World, config, device, node

MIRROR = {"raidType": "mirror"}
SELECTED = {"nodeSelectorTerms": [{"matchLabels": {"pools": "yes"}}]}
LOCAL = {"local": {"blockDeviceSelector": {"matchLabels": {"use": "pools"}}}}


def cluster(count: int = 5, **spec: object) -> World:
    world = World(config(**spec), *(node(f"n{i}", zone=f"z{i % 3}", pools="yes") for i in range(count)))
    world.settle()
    return world


def local_world(disks: int = 3, nodes: int = 3, **spec: object) -> World:
    devices = [
        device(f"disk-{host}-{number}", f"n{host}", labels={"use": "pools"})
        for host in range(nodes)
        for number in range(disks)
    ]
    return World(config(diskConfig=LOCAL, **spec), *(node(f"n{i}") for i in range(nodes)), *devices)


def lose(world: World, *names: str) -> None:
    world.dead.update(names)
    world.settle()
    world.seconds += 400
    world.settle()
