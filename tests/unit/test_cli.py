import argparse
import importlib
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from draftkiln import cli


def test_help_names_every_command(capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main(["--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert all(name in text for name in cli.COMMANDS)


def test_help_imports_nothing_heavy():
    program = (
        "import sys; from draftkiln import cli\ntry: cli.main(['--help'])\nexcept SystemExit: pass\nprint(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not {"torch", "vllm", "numpy", "pydantic", "rich", "yaml"} & set(done.stdout.split())


@pytest.mark.parametrize("name", sorted(cli.COMMANDS))
def test_every_command_has_help(name, capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main([name, "--help"])
    assert caught.value.code == 0
    assert name in capsys.readouterr().out


def help_lines():
    """Every command and every action of one, as the words that show its help."""
    for name, command in sorted(cli.COMMANDS.items()):
        yield (name, "--help")
        parser = argparse.ArgumentParser()
        importlib.import_module(command.module).add_arguments(parser)
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                yield from ((name, choice, "--help") for choice in action.choices)


@pytest.mark.parametrize("words", list(help_lines()), ids=" ".join)
def test_every_help_is_shown_where_the_locale_knows_ascii_only(words, monkeypatch):
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="strict"))
    with pytest.raises(SystemExit) as caught:
        cli.main(list(words))
    assert caught.value.code == 0
    sys.stdout.flush()
    assert sys.stdout.buffer.getvalue().startswith(b"usage: draftkiln")


def test_the_c_locale_without_pythons_own_remedies_shows_help():
    plain = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = run("bisect", "--help", env=plain)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_reader_that_closes_early_is_no_traceback():
    command = [sys.executable, "-m", "draftkiln", "patches", "list"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        running.stdout.close()
        assert running.stderr.read() == ""
        assert running.wait() == 141


def run(*words: str, **more: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "draftkiln", *words], capture_output=True, text=True, check=False, **more
    )


def test_a_place_that_cannot_be_used_is_told_without_a_traceback(tmp_path):
    (tmp_path / "file").touch()
    done = run("prepare", "--recipe", "recipes/tiny-cpu.yaml", "--run", str(tmp_path / "file" / "run"))
    assert done.returncode == 10
    assert "cannot use" in done.stderr
    assert "Traceback" not in done.stderr


def test_output_that_finds_no_room_is_told_without_a_traceback():
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "draftkiln", "recipes", "ls"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 10
    assert "cannot write" in done.stderr
    assert "free some room" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_a_stage_that_there_is_not_is_a_mistake_of_the_command_line():
    done = run("run", "--recipe", "recipes/tiny-cpu.yaml", "--until", "banana")
    assert done.returncode == 2
    assert "extract" in done.stderr


def test_a_closed_output_does_not_fail_what_was_done():
    command = ["sh", "-c", '"$0" -m draftkiln patches list >&-', sys.executable]
    assert subprocess.run(command, check=False).returncode == 0
