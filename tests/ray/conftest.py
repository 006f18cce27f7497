import os
import sys
import time
from pathlib import Path

import pytest

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
for part in ("extract", "scale"):
    sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / part))

_NODE = {"object_store_memory": 80 << 20}


@pytest.fixture(scope="module")
def several_nodes():
    """A real Ray cluster of several nodes on this host: a head without CPUs, so that every replica has a node."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 0, "include_dashboard": False, **_NODE},
        shutdown_at_exit=False,
    )
    try:
        yield cluster
    finally:
        cluster.shutdown()


@pytest.fixture
def nodes(several_nodes):
    """Adds nodes of one CPU each; those there are stay for the next test."""

    def at_least(count):
        while len(several_nodes.worker_nodes) < count:
            several_nodes.add_node(num_cpus=1, **_NODE)
        while len(several_nodes.worker_nodes) > count:
            several_nodes.remove_node(next(iter(several_nodes.worker_nodes)), allow_graceful=True)
        several_nodes.wait_for_nodes()
        return several_nodes

    return at_least


@pytest.fixture
def joined(several_nodes, tmp_path):
    """This process in the cluster, and a run directory."""
    from ray_driver import Timed

    from draftkiln.scale import cluster

    run = Timed(tmp_path / "run", 200)
    with cluster.connected(several_nodes.address, run.append):
        yield run
    deadline = time.monotonic() + 10
    while stubs(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not stubs(tmp_path)


def stubs(folder):
    """Processes of stub engines of a run, by the slot of their replica."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if any(word.endswith("stub_replica.py") for word in words) and any(str(folder) in word for word in words):
            found[int(path.parent.name)] = words[words.index("--replica") + 1]
    return found


@pytest.fixture
def processes(tmp_path):
    return lambda: stubs(tmp_path)
