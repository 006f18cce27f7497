"""The benchmark's own words; what engines measure is shown by `nox -s bench`."""

from draftkiln import cli
from draftkiln.errors import ExitCode


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
