"""Layer ids: the one place that knows all conventions.

draftkiln and vLLM count *decoder layers applied*: id `k` is the input of layer `k` (0 = embeddings, `n` = after the
last layer, before the final norm). The generator of speculators 0.3/0.4 counts the *output* of layer `i`, so
`i = k - 1`, and id 0 cannot be asked of it. SGLang counts outputs too, but not for every target.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def default_aux_ids(num_layers: int) -> tuple[int, int, int]:
    """The three ids that vLLM captures when a draft names none: `(2, n // 2, n - 3)`.

    Source: vLLM, `get_eagle3_aux_hidden_state_layers` of its decoder models.
    """
    return (2, num_layers // 2, num_layers - 3)


def captured_ids(aux_ids: Sequence[int], num_layers: int) -> tuple[int, ...]:
    """The ids of the slots of a sample, in slot order: the auxiliary ids, then `n`."""
    return (*aux_ids, num_layers)


def to_generator_ids(ids: Sequence[int]) -> list[int]:
    """Translate ids into the output-counting ids of speculators 0.3/0.4's generator.

    Raises:
        ValueError: an id below 1, whose state no layer outputs.
    """
    if any(layer < 1 for layer in ids):
        raise ValueError(f"the generator cannot give the embeddings (id 0 or below): {list(ids)}")
    return [layer - 1 for layer in ids]


def to_sglang_ids(ids: Sequence[int], architecture: str) -> list[int]:
    """Translate ids into those that SGLang's draft config must hold for a target of this architecture.

    SGLang captures before layer `id + 1`, so it counts outputs. DeepSeek-like targets (Kimi-K2.5 among them) are told
    apart since https://github.com/sgl-project/sglang/pull/25454: one is added only where the first id is 1, so with a
    first state after two layers the output-counting ids are right before and after that change, and every other list is
    taken as it is since then. gpt-oss takes ids as they are since https://github.com/sgl-project/sglang/pull/32334.

    Raises:
        ValueError: what SGLang would make of these ids cannot be these states.
    """
    outputs = [layer - 1 for layer in ids]
    if architecture.startswith("GptOss"):
        return list(ids)
    if not architecture.startswith(("Deepseek", "Kimi")):
        return outputs
    if list(ids[:1]) == [1]:
        raise ValueError(f"SGLang adds one to every id of a list that begins with 1: {list(ids)} cannot be said to it")
    return outputs if list(ids[:1]) == [2] else list(ids)


def from_sglang_ids(ids: Sequence[int], architecture: str) -> list[int]:
    """Translate the ids of SGLang's draft config, for a target of this architecture, into this project's."""
    shifted = [layer + 1 for layer in ids]
    if architecture.startswith("GptOss"):
        return list(ids)
    if architecture.startswith(("Deepseek", "Kimi")) and list(ids[:1]) != [1]:
        return list(ids)
    return shifted


def problems(aux_ids: Sequence[int], num_layers: int) -> list[str]:
    """What is wrong with auxiliary ids on a target of `num_layers` layers; empty when nothing is.

    The last id `n` is always captured besides, as the last slot, and so is not an auxiliary id.
    """
    found = []
    for layer in aux_ids:
        if layer == 0:
            found.append("id 0 is the embeddings, which no layer outputs and the generator cannot give")
        elif layer == num_layers:
            found.append(f"id {layer} is the state after the last layer, captured always as the last slot")
        elif not 0 < layer < num_layers:
            found.append(f"id {layer} is outside 1..{num_layers - 1} of a target with {num_layers} layers")
    doubled = sorted({layer for layer in aux_ids if list(aux_ids).count(layer) > 1})
    found.extend(f"id {layer} is named more than once" for layer in doubled)
    if list(aux_ids) != sorted(aux_ids) and not doubled:
        found.append(f"ids must ascend, as the engine returns them: {sorted(aux_ids)}")
    return found
