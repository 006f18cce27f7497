"""How many samples data can make, where that can be known from lines alone."""

import pytest

from draftkiln.preflight.samples import count
from draftkiln.recipe.model import Data


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "d.jsonl"
    path.write_text("{}\n" * 10)
    return str(path)


def test_lines_of_all_files_are_counted_with_their_weights(file):
    assert count(Data(source={"path": file}, held_out=3)) == 7
    assert count(Data(source={"several": [{"path": file}, {"path": file, "weight": 1.5}]}, held_out=0)) == 30
    assert count(Data(source={"synthetic": 5})) == 5


@pytest.mark.parametrize(
    "data",
    [
        {"source": {"path": "nowhere.jsonl"}},
        {"source": {"path": "d.parquet"}},
        {"source": {"hub": "a/b", "revision": "0" * 40, "files": ["d.jsonl"]}},
    ],
)
def test_what_cannot_be_counted_by_lines_is_not_guessed(data):
    assert count(Data(**data)) is None


def test_split_conversations_may_give_any_number_of_samples(file):
    assert count(Data(source={"path": file}, too_long="split")) is None
