"""A driver of its own over a Ray cluster with stub engines, for tests that kill it and for the benchmark.

python ray_driver.py ADDRESS RUN SAMPLES REPLICAS [PAUSE]
"""

import contextlib
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "extract"))
sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "scale"))

import stub_extraction as stub
from local_replicas import Run, start

from draftkiln.extract import drive
from draftkiln.scale import cluster


class Timed(Run):
    """Notes when lines were told and how many samples were recorded when."""

    def __init__(self, run, count):
        super().__init__(run, count, stub)
        self.recorded = []
        self.lines = []
        self.told = self

    def append(self, line):
        self.lines.append((time.monotonic(), line))

    def __iter__(self):
        return (line for _, line in self.lines)

    def after(self, count):
        self.recorded.append((time.monotonic(), count))

    def at(self, text):
        """When the last line with this text was told."""
        return max(moment for moment, line in self.lines if text in line)


def replicas(run, count, **told):
    """A context with replicas as Ray actors, one CPU each; this process has joined the cluster."""
    begin = start(run, **told)
    return contextlib.closing(cluster.RayReplicas(begin, cluster.bundle(1, "cpu", None, None), count))


def main():
    address, folder, count, number, *pause = sys.argv[1:]
    run = Timed(Path(folder), int(count))
    drive._REPORT_SECONDS = 0.02
    with (
        cluster.connected(address, run.append),
        replicas(run.run, int(number), pause=float(pause[0]) if pause else 0.01) as group,
    ):
        print("driver", flush=True)
        run.after = lambda recorded: print("recorded", recorded, flush=True)
        run.extract(group)
    run.check()


if __name__ == "__main__":
    main()
