import pytest

from draftkiln.containers import current, engine, inputs
from draftkiln.errors import ContainerError

STACK = "spec0.3.0-vllm0.16.0-cpu"


@pytest.fixture
def image(stub, built):
    """An engine whose image has these labels besides those of this checkout."""

    def make(**other):
        stub("podman", labels=built(STACK) | {f"draftkiln.{key}": value for key, value in other.items()})
        return engine.ask("podman")

    return make


def test_an_image_of_this_checkout_is_taken_without_a_word(image, capsys):
    current.require(image(), STACK)
    assert capsys.readouterr() == ("", "")


def test_an_image_with_other_code_is_told_with_its_commit(image, capsys):
    current.require(image(source="other"), STACK)
    said = capsys.readouterr().err
    assert "0123456789ab" in said
    assert f"nox -s build -- --stack {STACK}" in said


def test_a_stage_of_a_whole_run_does_not_tell_it_again(image, capsys, monkeypatch):
    monkeypatch.setenv(current.TOLD, "1")
    current.require(image(source="other"), STACK)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("label", ["requirements", "speculators"])
def test_an_image_from_another_lock_is_refused(image, label):
    with pytest.raises(ContainerError, match="another state of the stack") as caught:
        current.require(image(**{label: "other"}), STACK)
    assert label in caught.value.why
    assert f"nox -s build -- --stack {STACK}" in caught.value.fix


def test_uncommitted_changes_tell_two_states_of_a_checkout_apart(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "docs").mkdir()
    (tmp_path / "src" / "a.py").write_text("1\n")
    before = inputs.source_sha256(tmp_path)
    (tmp_path / "docs" / "a.md").write_text("no part of an image\n")
    assert inputs.source_sha256(tmp_path) == before
    (tmp_path / "src" / "a.py").write_text("2\n")
    assert inputs.source_sha256(tmp_path) != before
