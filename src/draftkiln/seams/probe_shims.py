"""Work round a break that was found, so that what lies behind it shows in the same run. Engine side."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import torch

from draftkiln.seams import stub_target

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

_SUPPLIED = {"is_encoder_decoder": False, "block_size": 16}
_MEMORY = (2 << 30, 2 << 30)
_CALLED = (
    "CacheConfig",
    "DeviceConfig",
    "LoadConfig",
    "ModelConfig",
    "ParallelConfig",
    "SchedulerConfig",
    "VllmConfig",
    "get_kv_cache_config_from_groups",
    "Scheduler",
    "Request",
    "StructuredOutputManager",
)


def forgive(generator: ModuleType, report: Callable[[str, str, str], None]) -> None:
    """Make the generator's calls fit the installed signatures; `report(callee, problem, name)` hears of each misfit.

    Only for a tree whose calls already failed: a wrapper stands where the class was.
    """
    for name in _CALLED:
        original = getattr(generator, name, None)
        if original is not None and not hasattr(original, "forgiven"):
            setattr(generator, name, _forgiving(name, original, report))


def _forgiving(name: str, original: Any, report: Callable[[str, str, str], None]) -> Any:
    parameters = inspect.signature(original).parameters
    open_ended = any(item.kind is inspect.Parameter.VAR_KEYWORD for item in parameters.values())

    def call(*positional: Any, **keywords: Any) -> Any:
        for keyword in [item for item in keywords if item not in parameters and not open_ended]:
            report(name, "unexpected keyword", keyword)
            del keywords[keyword]
        for place, (item, parameter) in enumerate(parameters.items()):
            required = parameter.default is inspect.Parameter.empty and parameter.kind in {
                inspect.Parameter.POSITIONAL_OR_KEYWORD,
                inspect.Parameter.KEYWORD_ONLY,
            }
            if required and place >= len(positional) and item not in keywords and item in _SUPPLIED:
                report(name, "missing parameter", item)
                keywords[item] = _SUPPLIED[item]
        return original(*positional, **keywords)

    call.forgiven = True  # type: ignore[attr-defined]
    call.__signature__ = inspect.signature(original)  # type: ignore[attr-defined]
    return call


def before(number: int, generator: ModuleType) -> None:
    """Work round breaks that must be mended before the generator is built."""
    if number == 3:  # noqa: PLR2004 - numbers of docs/patches.md
        torch.cuda.mem_get_info = lambda *_: _MEMORY
        if hasattr(generator, "mem_get_info"):
            generator.mem_get_info = lambda *_: _MEMORY  # type: ignore[attr-defined]
    elif number == 6:  # noqa: PLR2004
        stub_target.both_embedding_names()
    elif number == 7:  # noqa: PLR2004
        _hash_blocks(generator)
    elif number == 10:  # noqa: PLR2004
        original = generator.CacheConfig

        def without_prefix_caching(*positional: Any, **keywords: Any) -> Any:
            return original(*positional, **{**keywords, "enable_prefix_caching": False})

        generator.CacheConfig = without_prefix_caching  # type: ignore[attr-defined]


def _hash_blocks(generator: ModuleType) -> None:
    from vllm.utils.hashing import get_hash_fn_by_name
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash

    function = get_hash_fn_by_name("sha256")
    init_none_hash(function)
    original = generator.Request

    def hashed(*positional: Any, **keywords: Any) -> Any:
        keywords.setdefault("block_hasher", get_request_block_hasher(16, function))
        return original(*positional, **keywords)

    generator.Request = hashed  # type: ignore[attr-defined]


def after(number: int, executor: Any) -> None:
    """Work round breaks that are mended on the built executor."""
    if number == 8:  # noqa: PLR2004
        rpc = executor.collective_rpc

        def nested(*positional: Any, **keywords: Any) -> Any:
            reply = rpc(*positional, **keywords)
            asked = keywords.get("unique_reply_rank") is not None and isinstance(
                positional[0] if positional else None, str
            )
            return [reply] if asked and positional[0] == "_get_captured_states" else reply

        executor.collective_rpc = nested
    elif number == 9:  # noqa: PLR2004
        execute = executor.execute_model

        def finished(scheduler_output: Any, *rest: Any, **keywords: Any) -> Any:
            output = execute(scheduler_output, *rest, **keywords)
            return executor.sample_tokens(None) if output is None else output

        executor.execute_model = finished
