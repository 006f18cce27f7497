"""The train section: where a draft starts from, and what of the section is recorded."""

import pytest
from least_recipe import FROM_FILE as GOOD

from draftkiln.errors import ProblemsError
from draftkiln.recipe.load import loads


def recorded(more):
    return loads(GOOD + more, "r.yaml").model_dump(mode="json", by_alias=True)["train"]


def test_what_decides_the_result_is_recorded_and_nothing_else():
    assert not {"loggers", "save_minutes", "save_steps"} & recorded("").keys()
    assert recorded("  devices: 2\n  shard: true\n")["devices"] == 2
    assert recorded("  init_from: {path: d}\n")["init_from"] == {"path": "d"}
    assert recorded("  loggers: [wandb]\n  save_minutes: 1\n  save_steps: 5\n") == recorded("")
    assert loads(GOOD + "  loggers: [wandb, mlflow]\n", "r.yaml").train.loggers == ("wandb", "mlflow")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("  init_from: {pth: d}\n", "did you mean `path`?"),
        ("  init_from: {hub: a/b, revision: main}\n", "train.init_from.revision"),
        ("  init_from: {path: a, hub: b}\n", "path and hub exclude each other"),
        ("  loggers: [tensorbord]\n", "it should be 'tensorboard', 'wandb', 'trackio' or 'mlflow'"),
        ("  shard: true\n", "weights are spread over one device"),
        ("  save_minutes: 0\n", "train.save_minutes"),
        ("  optimizer: muon\n  muon_weight_decay: -0.1\n", "train.muon_weight_decay"),
        ("  lr: 1e6\n", "train.lr: 1000000.0 is not accepted\n  why: it should be less than or equal to 1\n"),
        ("  lr: 1.5\n", "a step moves each weight by about so much"),
        ("  optimizer: muon\n  muon_lr: 1e6\n", "train.muon_lr: 1000000.0 is not accepted"),
        ("  optimizer: muon\n  muon_weight_decay: 1e6\n", "it should be less than or equal to 1000"),
        ("  optimizer: muon\n  lr: 1e-2\n  muon_weight_decay: 100\n", "100 times the learning rate is 1\n"),
        ("  optimizer: muon\n  muon_lr: 0.5\n  muon_weight_decay: 4\n", "lower it below 2, or train.muon_lr"),
    ],
)
def test_a_wrong_value_is_told_by_its_key(more, words):
    with pytest.raises(ProblemsError) as caught:
        loads(GOOD + more, "r.yaml")
    assert words in str(caught.value)


def test_strong_but_possible_rates_and_decays_pass():
    train = loads(GOOD + "  optimizer: muon\n  lr: 1\n  muon_lr: 5e-3\n  muon_weight_decay: 199\n", "r.yaml").train
    assert (train.lr, train.muon_lr, train.muon_weight_decay) == (1.0, 5e-3, 199.0)
