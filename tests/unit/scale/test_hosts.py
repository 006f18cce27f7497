"""What the command line says of several hosts, and what contradicts itself."""

import argparse
import tracemalloc
from pathlib import Path

import pytest

from draftkiln.errors import UsageError
from draftkiln.extract import command, engine
from draftkiln.scale import cluster, hosts
from draftkiln.scale.ledger import Ledger
from draftkiln.scale.ranges import Ranges


def parsed(*words):
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return hosts.of(parser.parse_args(["--recipe", "r.yaml", "--run", "d", *words]))


def test_without_an_address_there_are_no_hosts():
    assert parsed() is None


def test_what_is_said_of_hosts():
    found = parsed("--ray", "h:6379", "--replicas", "3", "--host-run", "/nvme/run", "--executor", "ray")
    assert (found.address, found.replicas, found.run, found.executor) == ("h:6379", 3, Path("/nvme/run"), "ray")
    assert found.engine_in == "stack"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--replicas", "2"], "--replicas means nothing without --ray"),
        (["--host-run", "/x"], "--host-run means nothing without --ray"),
        (["--ray", "local", "--shard", "1/2"], "exclude each other"),
        (["--ray", "local", "--check-ranks", "2"], "is for one host"),
        (["--ray", "local", "--replicas", "0"], "1 or more"),
        (["--ray", "local", "--engine-in", "venv"], "means nothing"),
        (["--ray", "local", "--host-run", "/x", "--check-existing", "full"], "does not reach other hosts"),
    ],
)
def test_what_contradicts_itself_is_refused(words, said):
    with pytest.raises(UsageError, match=said):
        parsed(*words)


def test_what_a_replica_takes_of_its_host():
    assert cluster.bundle(8, "cuda", None, None) == {"CPU": 1, "GPU": 8}
    assert cluster.bundle(2, "cpu", None, None) == {"CPU": 2}
    assert cluster.bundle(1, "cpu", 4, None) == {"CPU": 4}
    # vLLM's own executor asks Ray for the devices of an engine that spreads over hosts.
    assert cluster.bundle(16, "cuda", None, "ray") == {"CPU": 1}


def test_vllm_s_executor_is_passed_on(monkeypatch):
    settings = engine.Settings.__new__(engine.Settings)
    recipe = argparse.Namespace(target=_Anything(), extract=_Anything())
    for name, value in {"target": "t", "recipe": recipe, "longest": 8, "dtype": "bfloat16", "executor": "ray"}.items():
        object.__setattr__(settings, name, value)
    assert settings.arguments()["distributed_executor_backend"] == "ray"
    object.__setattr__(settings, "executor", None)
    assert "distributed_executor_backend" not in settings.arguments()


class _Anything:
    def __getattr__(self, name):
        return name


def test_the_driver_s_account_of_a_million_samples_is_no_list_of_them():
    tracemalloc.start()
    ledger = Ledger(Ranges([range(1_000_000)]), most=1024)
    held = {name: ledger.hand_out(name, 8) for name in "abcdefgh"}
    while len(ledger.unfinished) > 980_000:
        for name, part in held.items():
            # Samples of one replica do not become durable quite in order.
            for index in [*part[1::2], *part[::2]]:
                assert ledger.accept(index)
            held[name] = ledger.hand_out(name, 8)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # As integers in a list they take 36 MB.
    assert peak < 1 << 20
