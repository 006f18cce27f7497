import pytest

from draftkiln.containers import driver


@pytest.mark.parametrize(
    ("cuda", "version", "state"),
    [
        ("12.8", "570.86.15", "pass"),
        ("12.8", "550.54.14", "warn"),
        ("12.8", "470.82.01", "fail"),
        ("13.0", "575.51.03", "fail"),
        ("13.0", "580.95.05", "pass"),
        ("12.8", None, "skip"),
        ("12.8", "N/A", "skip"),
        ("99.0", "580.95.05", "skip"),
    ],
)
def test_case_66_the_driver_is_compared_before_anything_is_loaded(cuda, version, state):
    assert driver.compare(cuda, version).state == state


def test_case_66_a_driver_without_ptx_of_the_image_is_warned_about_by_name():
    assert "PTX" in driver.compare("12.8", "550.54.14").reason


def test_case_66_the_host_is_asked(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert driver.installed() is None
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 570.86.15\necho 570.86.15\n")
    program.chmod(0o755)
    assert driver.installed() == "570.86.15"
    program.write_text("#!/bin/sh\necho 'NVIDIA-SMI has failed'\nexit 9\n")
    assert driver.installed() is None
