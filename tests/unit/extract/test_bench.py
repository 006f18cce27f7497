"""The benchmark's own words; what engines measure is shown by `nox -s bench`."""

import argparse
import io
from pathlib import Path

from draftkiln import cli, stagelog
from draftkiln.errors import ExitCode
from draftkiln.extract import bench


def test_a_resume_is_measured_without_an_engine_and_leaves_nothing(tmp_path, capsys):
    assert cli.main(["bench", "--folder", str(tmp_path / "bench"), "--resume", "30"]) == 0
    out = capsys.readouterr().out
    for what in ("manifest read: ", "quick check of the files", "memory of the driver", "validate --headers-only"):
        assert what in out
    assert list((tmp_path / "bench").iterdir()) == []


def test_without_a_recipe_it_is_told_what_is_wanted(tmp_path, capsys):
    assert cli.main(["bench", "--folder", str(tmp_path / "bench")]) == ExitCode.USAGE
    assert "--resume N" in capsys.readouterr().err


def test_a_folder_that_holds_something_is_left_alone(tmp_path, capsys):
    (tmp_path / "mine").write_text("x")
    assert cli.main(["bench", "--folder", str(tmp_path), "--resume", "5"]) == ExitCode.USAGE
    assert (tmp_path / "mine").read_text() == "x"
    assert "is not empty" in capsys.readouterr().err


def test_another_place_on_the_same_engine_is_named_with_its_lengths():
    parser = argparse.ArgumentParser()
    bench.add_arguments(parser)
    words = ["--folder", "a", "--also", "/dev/shm/b:100,3000", "--also", "c:512"]
    assert parser.parse_args(words).also == [(Path("/dev/shm/b"), (100, 3000)), (Path("c"), (512,))]


def test_each_place_is_set_against_its_own_plain_prefill():
    said = io.StringIO()
    found = argparse.Namespace(token_budget=None, tokens=(512,), samples=2, rounds=1, result=None)
    rates = {"plain prefill": [100.0], "extract": [90.0], "plain prefill, b": [50.0], "extract, b": [49.0]}
    bench._print(rates | {"other": [9.0]}, {}, found, "here", stagelog.Terminal(said))
    lines = said.getvalue().splitlines()
    assert "| extract, b | 49 | 49 … 49 | 0.980 |" in lines
    assert [line for line in lines if line.startswith("extract / ")] == [
        "extract / other: 10.00",
        "extract / plain prefill ratio: 0.900",
    ]
