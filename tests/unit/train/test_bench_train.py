from draftkiln.train.bench import Measured, summary, table


def test_the_pace_leaves_the_first_steps_out_and_losses_are_compared_step_by_step() -> None:
    ours = [Measured(20.0, [4.0, 3.0, 2.0, 1.0], [1.0, 1.0, 1.0, 90.0])]
    theirs = [Measured(17.5, [4.0, 3.5, 2.0, 1.0], [1.0, 1.0, 1.0, 100.0])]
    found = summary(ours, theirs)
    assert (found["ratio"], found["start_overhead_seconds"], found["largest_loss_difference"]) == (0.9, 2.5, 0.5)
    assert any("ratio of tokens/s: 0.9; overhead at start: 2.5 s" in line for line in table(found))
