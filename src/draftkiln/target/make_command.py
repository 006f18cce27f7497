"""`draftkiln make-target`: write a small made-up target, or a wide one that is config and tokenizer alone."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from draftkiln import counts
from draftkiln.errors import ExitCode

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("folder", type=Path, help="folder to write; must not exist")
    parser.add_argument(
        "--shape",
        choices=("kimi-tiny", "small", "deepseek-v3-narrow", "kimi-k2.5-text"),
        default="kimi-tiny",
        help="kimi-tiny: hidden size 7168, 481 MB; small: hidden size 256, 5 MB (default: kimi-tiny). Without weights, "
        "for load_format dummy on a GPU: deepseek-v3-narrow, kimi-k2.5-text (all of its width, INT4 experts)",
    )
    parser.add_argument("--layers", type=counts.positive, default=6, help="of the wide shapes (default: 6)")
    parser.add_argument(
        "--weights",
        action="store_true",
        help="with a wide shape: also random weights of its sizes, kimi-k2.5-text's experts in packed INT4; 6 GB and "
        "9.5 GB a layer",
    )
    parser.add_argument("--seed", type=int, default=17, help="same seed, same bytes (default: 17)")


def main(arguments: argparse.Namespace) -> int:
    """Write the target and say what it is."""
    from draftkiln.target import width
    from draftkiln.target.make import make

    if arguments.shape in width.NAMES:
        seed = arguments.seed if arguments.weights else None
        folder = width.write(arguments.shape, arguments.layers, arguments.folder, seed)
        with_weights = f"{_size(folder)} of random weights, seed {seed}" if arguments.weights else "no weights"
        print(f"{folder}: config and tokenizer of {arguments.shape}, {arguments.layers} layers, {with_weights}")
        return ExitCode.OK
    begun = time.perf_counter()
    folder = make(arguments.shape, arguments.seed, arguments.folder)
    took = time.perf_counter() - begun
    print(f"{folder}: {arguments.shape}, seed {arguments.seed}, {_size(folder)} in {took:.1f} s")
    return ExitCode.OK


def _size(folder: Path) -> str:
    return f"{sum(path.stat().st_size for path in folder.iterdir()) / 1e6:.1f} MB"
