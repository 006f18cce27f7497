"""Numbers of a command line that count something."""

from __future__ import annotations

import argparse


def positive(text: str) -> int:
    """A whole number above 0; anything else is a usage error that quotes it."""
    if not (text.isascii() and text.isdecimal()) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return int(text)
