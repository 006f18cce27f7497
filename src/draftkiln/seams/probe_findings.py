"""What the probe can find: the numbered breaks of behaviour, how each shows, and what mends it.

Plain data, read on the host too.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Known:
    """A numbered break of docs/patches.md."""

    number: int
    what: str
    fix: str
    signs: tuple[str, ...] = ()
    """Texts of a traceback that give it away; all texts of one sign, split at ` & `, must be there."""
    mended: bool = True
    """Whether the probe can work round it and look on behind it."""


KNOWN = {
    item.number: item
    for item in (
        Known(1, "SchedulerConfig needs is_encoder_decoder", "pass False", ("is_encoder_decoder",)),
        Known(
            3,
            "the free memory is asked of a GPU that is not there",
            "take the CPU's KV-cache size from the engine",
            ("mem_get_info", "num_gpu_blocks > 0", "Found no NVIDIA driver"),
        ),
        Known(4, "get_kv_cache_config_from_groups takes no kv_cache_specs", "drop it", ("kv_cache_specs",)),
        Known(5, "Scheduler needs block_size", "pass it", ("Scheduler & 'block_size'",)),
        Known(
            6,
            "the decoder's embedding method has another name",
            "call the one that the build has",
            ("has no attribute 'get_input_embeddings'", "has no attribute 'embed_input_ids'"),
        ),
        Known(
            7,
            "a prompt that fills a block of 16 has no block hashes",
            "give the request a block hasher",
            ("block_hashes",),
        ),
        Known(
            8,
            "collective_rpc(unique_reply_rank=0) gives the bare reply, not a list of one",
            "do not index the reply",
            ("Boolean value of Tensor", "collective_rpc & KeyError: 0"),
        ),
        Known(
            9,
            "execute_model returns None and the next step dies",
            "call sample_tokens when execute_model returns None",
            ("sample_tokens() must be called",),
        ),
        Known(
            10, "prefix caching drops or mixes up rows of prompts that were seen before", "switch prefix caching off"
        ),
        Known(
            11,
            "rows of a prompt split across steps come from another prompt",
            "keep a request until all its tokens are computed",
            mended=False,
        ),
        Known(
            12,
            "results come in another order, or prompts past the first 32 are never served",
            "order by input and finish requests in the loop",
            ("not found in captured states",),
            mended=False,
        ),
        Known(
            13,
            "a prompt of exactly the maximum length loses a token",
            "leave room for the one generated token",
            mended=False,
        ),
        Known(14, "the tokenizer is loaded without trust_remote_code", "pass it on", mended=False),
    )
}


@dataclass(frozen=True)
class Finding:
    """One thing that went wrong: its `number` in docs/patches.md (None if it is not there), where, how it showed."""

    number: int | None
    scenario: str
    what: str
    seen: str
    fix: str

    def as_json(self) -> dict[str, Any]:
        """The finding as a JSON object."""
        return asdict(self)


def finding(number: int | None, scenario: str, seen: str) -> Finding:
    """A finding of a numbered break, or of something unknown."""
    known = KNOWN.get(number) if number is not None else None
    if known is None:
        return Finding(
            None,
            scenario,
            "something that is not among the known breaks",
            seen,
            "read the log; report it if vLLM is at fault",
        )
    return Finding(number, scenario, known.what, seen, known.fix)


def recognised(trace: str) -> int | None:
    """Number of the break that a traceback shows, None for an unknown one."""
    for known in KNOWN.values():
        for sign in known.signs:
            if all(part in trace for part in sign.split(" & ")):
                return known.number
    return None
