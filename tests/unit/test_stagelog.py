import io
import json
import os
import subprocess
import sys

import pytest

from draftkiln import stagelog
from draftkiln.errors import DataError
from draftkiln.events import Events


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


def test_an_engine_that_did_not_start_is_told_by_what_its_process_printed(tmp_path):
    """Found on a GPU that others filled while the engine looked how much was free."""
    body = """
import os, pathlib, sys
from draftkiln import stagelog
from draftkiln.errors import EngineError
try:
    with stagelog.stage_log(pathlib.Path(sys.argv[1])):
        os.write(2, b"(EngineCore pid=7) ERROR 11-30 13:11:56 [core.py:1136] ValueError: No available memory.\\n")
        raise RuntimeError("Engine core initialization failed. See root cause above. Failed core proc(s): {}")
except EngineError as failure:
    print(failure)
"""
    log = tmp_path / "extract.log"
    log.write_text("\n===== before\nOSError: of an earlier start\n")
    done = subprocess.run([sys.executable, "-c", body, str(log)], capture_output=True, text=True, check=True)
    assert "stage failed: ValueError: No available memory." in done.stdout
    assert "root cause above" in log.read_text()


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


class Screen(io.StringIO):
    def isatty(self):
        return True


def test_on_a_terminal_progress_is_a_bar_that_lines_do_not_break():
    screen = Screen()
    terminal = stagelog.Terminal(screen)
    terminal.progress("[3/12] samples", share=0.25)
    terminal.line("a line")
    terminal.progress("[12/12] samples", share=1.0, last=True)
    text = screen.getvalue()
    assert " 25%" in text
    assert "[3/12] samples" in text
    assert "100%" in text
    assert "a line\n" in text
    assert text.endswith("\n\x1b[?25h")  # the cursor is back, on a line of its own


def test_elsewhere_progress_is_a_plain_line_at_times_and_the_last_always():
    plain = io.StringIO()
    terminal = stagelog.Terminal(plain)
    for number in range(100):
        terminal.progress(f"{number}/100", share=number / 100)
    terminal.progress("100/100", share=1.0, last=True)
    assert plain.getvalue() == "0/100\n100/100\n"


def test_the_log_for_programs_has_lines_progress_and_errors_with_their_code(tmp_path):
    log = Events(tmp_path / "x.jsonl", {"run": "r", "stage": "extract", "stack": "s"})

    def body(terminal):
        terminal.line("engine ready")
        terminal.progress("1/2", last=True, figures={"samples": 1})
        raise DataError("row 3", why="it is bad")

    with pytest.raises(DataError), stagelog.stage_log(tmp_path / "x.log", events=log) as terminal:
        body(terminal)
    found = [json.loads(line) for line in (tmp_path / "x.jsonl").read_text().splitlines()]
    assert [line["event"] for line in found] == ["begin", "line", "progress", "error"]
    assert found[2]["samples"] == 1
    assert (found[3]["text"], found[3]["code"]) == ("row 3\n  why: it is bad", DataError.code)
    assert all(line["stack"] == "s" for line in found)
