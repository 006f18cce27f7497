"""A real Ray cluster of several nodes with stub engines: deaths of workers, engines, nodes and the driver.

Whatever dies, every sample is there once at the end, and the manifest is that of one host.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import ray_driver

from draftkiln.extract import manifest

# The warnings here are those of Ray and its neighbours.
pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("default")]
RECOVERY_SECONDS = 10.0


@pytest.mark.parametrize("count", [1, 2, 4])
def test_so_many_workers_make_what_one_host_makes(nodes, joined, count):
    nodes(count)
    with ray_driver.replicas(joined.run, count, pause=0.004) as group:
        joined.extract(group)
    joined.check()
    assert sum("computes on host" in line for line in joined) >= min(count, 2)


def test_a_killed_worker_s_range_is_computed_by_others_within_seconds(nodes, joined, processes):
    nodes(2)
    killed = {}
    real = joined.after

    def kill(count):
        real(count)
        if not killed and len(processes()) == 2:
            child, name = next(iter(processes().items()))
            held = joined.ledger._held.get(name)
            if not held:
                return
            killed["held"] = {index for part in held for index in part}
            killed["at"] = time.monotonic()
            # The actor's own process, and its engine ends when its pipe is closed.
            os.kill(int(Path(f"/proc/{child}/stat").read_text().rsplit(")", 1)[1].split()[1]), signal.SIGKILL)
        elif (
            killed
            and "again" not in killed
            and not killed["held"] & {index for part in joined.ledger.unfinished for index in part}
        ):
            killed["again"] = time.monotonic()

    joined.after = kill
    with ray_driver.replicas(joined.run, 2, pause=0.02) as group:
        joined.extract(group)
    joined.check()
    handed_out = joined.at("handed out again") - killed["at"]
    seconds = killed["again"] - killed["at"]
    print(
        f"killed worker: {len(killed['held'])} samples handed out after {handed_out:.1f} s, durable after {seconds:.1f}"
    )
    assert seconds < RECOVERY_SECONDS


def test_a_node_that_dies_loses_nothing_and_one_that_joins_gets_work(nodes, joined):
    cluster = nodes(2)
    done = []
    real = joined.after

    def lose_and_join(count):
        real(count)
        if not done and sum("computes on host" in line for line in joined) == 2:
            done.append(time.monotonic())
            victim = list(cluster.worker_nodes)[-1]
            threading.Thread(target=cluster.remove_node, args=(victim,), kwargs={"allow_graceful": False}).start()
            threading.Thread(target=cluster.add_node, kwargs={"num_cpus": 1, "object_store_memory": 80 << 20}).start()

    joined.after = lose_and_join
    with ray_driver.replicas(joined.run, 2, pause=0.1) as group:
        joined.extract(group)
    joined.check()
    lost = [moment for moment, line in joined.lines if "handed out" in line]
    assert lost
    print(f"killed node: its samples handed out after {lost[0] - done[0]:.1f} s")
    assert lost[0] - done[0] < RECOVERY_SECONDS
    assert sum("computes on host" in line for line in joined) == 3


def test_a_killed_driver_s_run_is_gone_on_with_and_its_engines_end(nodes, tmp_path, processes):
    cluster = nodes(2)
    run, count = tmp_path / "run", 200
    command = [sys.executable, ray_driver.__file__, cluster.address, str(run), str(count), "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as driver:
        for line in driver.stdout:
            if line.startswith("recorded"):
                break
        driver.kill()
        driver.stdout.read()
    before = {
        index: (run / "extract" / "hidden_states" / f"hs_{index}.safetensors").stat().st_mtime_ns
        for index in manifest.read(run / "extract" / "manifest.jsonl").receipts
    }
    assert 0 < len(before) < count
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    after = {
        index: (run / "extract" / "hidden_states" / f"hs_{index}.safetensors").stat().st_mtime_ns
        for index in manifest.read(run / "extract" / "manifest.jsonl").receipts
    }
    assert before.items() <= after.items()
    deadline = time.monotonic() + 10
    while processes() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not processes()


def test_an_address_without_a_cluster_is_told():
    from draftkiln.errors import SystemMissingError
    from draftkiln.scale import cluster

    with pytest.raises(SystemMissingError) as caught, cluster.connected("127.0.0.1:1", print):
        pass
    assert "ray start" in caught.value.fix
