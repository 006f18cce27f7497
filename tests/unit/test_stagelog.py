import os
import subprocess
import sys

import pytest

from draftkiln import stagelog
from draftkiln.errors import DataError


def test_an_assertion_without_text_is_told_by_its_line():
    block_hashes: list = []
    with pytest.raises(AssertionError) as caught:
        _grow(block_hashes)
    text = stagelog.cause_of(caught.value)
    assert "AssertionError at test_stagelog.py" in text
    assert "len(block_hashes) >= 1" in text


def _grow(block_hashes):
    if len(block_hashes) < 1:
        raise AssertionError  # len(block_hashes) >= 1


def test_the_root_of_a_chain_is_the_cause():
    with pytest.raises(RuntimeError) as caught:
        _wrapped()
    assert stagelog.cause_of(caught.value).endswith("'inner'")


def _wrapped():
    try:
        {}["inner"]
    except KeyError as error:
        raise RuntimeError("outer") from error


def test_an_engine_error_is_one_line_on_the_terminal_and_a_traceback_in_the_log(tmp_path):
    log = tmp_path / "log"
    program = """
import pathlib, sys
from draftkiln import stagelog
from draftkiln.errors import EngineError
try:
    with stagelog.stage_log(pathlib.Path(sys.argv[1])):
        raise ValueError("the engine said no")
except EngineError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program, str(log)], capture_output=True, text=True, check=True)
    assert "the engine said no" in done.stdout.splitlines()[0]
    assert str(log) in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    assert "Traceback" in log.read_text()


def test_an_error_of_ours_passes_as_it_is(tmp_path):
    with pytest.raises(DataError), stagelog.stage_log(tmp_path / "log"):
        raise DataError("row 3")


def test_what_child_processes_print_goes_into_the_log_and_the_stages_lines_to_the_terminal(tmp_path):
    program = """
import os, pathlib, sys
from draftkiln import stagelog
with stagelog.stage_log(pathlib.Path(sys.argv[1])) as terminal:
    os.system("echo from a child")
    print("from the engine")
    terminal.line("for people")
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "log")],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ,
    )
    assert done.stdout == "for people\n"
    log = (tmp_path / "log").read_text()
    assert "from a child" in log
    assert "from the engine" in log
