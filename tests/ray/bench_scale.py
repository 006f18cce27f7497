"""How extraction scales over replicas, measured with stub engines that take real time on a Ray cluster of this host.

    python tests/ray/bench_scale.py [--samples 10000] [--pause 0.03] [--folder DIR]

Prints tokens and samples a second at 1, 2 and 4 replicas (each on a node of its own), the efficiency, what share of a
replica's time is not its engine's, and what the driver's account of a million samples takes.
"""

import argparse
import json
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import ray_driver
from ray.cluster_utils import Cluster

from draftkiln.extract import manifest
from draftkiln.scale import cluster
from draftkiln.scale.ledger import Ledger
from draftkiln.scale.ranges import Ranges

_NODE = {"object_store_memory": 80 << 20}


def measure(address, folder, count, samples, pause):
    """Samples a second once all replicas compute, and the busy share of each."""
    run = ray_driver.Timed(folder / f"run-{count}", samples)
    with (
        cluster.connected(address, run.append),
        ray_driver.replicas(run.run, count, pause=pause, sync=0.5, keep_busy=str(folder)) as group,
    ):
        run.extract(group, most=128)
        end = time.monotonic()
    began = run.at("computes on host")
    recorded = sum(number for moment, number in run.recorded if moment > began)
    busy = [json.loads(path.read_text()) for path in folder.glob("busy-*.json")]
    for path in folder.glob("busy-*.json"):
        path.unlink()
    assert len(manifest.read(run.path).receipts) == samples
    shutil.rmtree(run.run)
    return recorded / (end - began), [1 - working / elapsed for working, elapsed in busy]


def account(count):
    """Seconds and memory of the driver's account of so many samples over 8 replicas."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.monotonic()
    ledger = Ledger(Ranges([range(count)]), most=1024)
    held = {str(number): ledger.hand_out(str(number), 8) for number in range(8)}
    while ledger.unfinished:
        for name, part in held.items():
            for index in [*part[1::2], *part[::2]]:
                ledger.accept(index)
            held[name] = ledger.hand_out(name, 8)
    return time.monotonic() - began, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e3


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=10_000, help="at 4 replicas; fewer at fewer, by their number")
    parser.add_argument("--pause", type=float, default=0.03, help="seconds a step of the stub engine takes")
    parser.add_argument("--folder", type=Path, help="where samples go (default: a temporary folder)")
    arguments = parser.parse_args()
    for count in (1_000, 1_000_000):
        seconds, more = account(count)
        print(
            f"driver's account of {count} samples: {more:.1f} MB more, {1e6 * seconds / count:.0f} us a sample",
            flush=True,
        )
    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **_NODE})
    one = 0.0
    try:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            for count in (1, 2, 4):
                while len(nodes.worker_nodes) < count:
                    nodes.add_node(num_cpus=1, **_NODE)
                nodes.wait_for_nodes()
                samples = arguments.samples * count // 4
                rate, idle = measure(nodes.address, Path(folder), count, samples, arguments.pause)
                one = one or rate
                shares = ", ".join(f"{share:.1%}" for share in idle)
                print(
                    f"{count} replicas, {samples} samples: {rate:.0f} samples/s, efficiency {rate / one / count:.3f}, "
                    f"not the engine's: {shares}",
                    flush=True,
                )
    finally:
        nodes.shutdown()


if __name__ == "__main__":
    main()
