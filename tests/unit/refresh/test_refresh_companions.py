import datetime as dt

import pytest
from fake_index import wheel

from draftkiln.errors import StackError
from draftkiln.refresh import companions

MOMENT = dt.datetime(2026, 11, 21, tzinfo=dt.UTC)
YAML = """\
# torchvision: the engine asks for an image processor
requirements: [accelerate, "datasets>=4.0.0", {torchvision}, unidiff]
overrides:
  - torch==2.10.0
  - torchaudio ; python_version < '0'
"""


@pytest.fixture
def torches(index):
    index.project("torch", *(wheel("torch", version, requires=()) for version in ("2.10.0", "2.11.0")))
    pairs = {"0.25.0": "2.10.0", "0.26.0": "2.11.0"}
    index.project(
        "torchvision", *(wheel("torchvision", own, requires=(f"torch=={its}",)) for own, its in pairs.items())
    )


@pytest.mark.parametrize(("torch", "version"), [("2.10.0", "0.25.0"), ("2.11.0", "0.26.0")])
def test_a_companion_is_the_one_that_was_built_for_the_torch_not_the_newest(torches, torch, version):
    wanted = ["accelerate", "datasets>=4.0.0", "torchvision==0.1"]
    assert companions.of(wanted, torch, MOMENT, "3.11") == {"torchvision": version}


def test_a_torch_that_no_companion_was_built_for_is_said_so(torches):
    with pytest.raises(StackError, match="no torchvision for torch 2.13.0"):
        companions.of(["torchvision"], "2.13.0", MOMENT, "3.11")


def test_without_companions_nobody_is_asked(index):
    assert companions.of(["accelerate"], "2.11.0", MOMENT, "3.11") == {}
    assert index.asked == []


@pytest.mark.parametrize("before", ["torchvision", "torchvision==0.1"])
def test_the_pin_goes_into_the_requirements_alone(before):
    text = companions.pinned(YAML.format(torchvision=before), {"torchvision": "0.25.0"})
    assert text == YAML.format(torchvision="torchvision==0.25.0")
