"""Chromium without a window: what a page prints to its console, its document, its picture."""

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
DARK, LIGHT = 0, 1
PHONE, DESK = (390, 844), (1280, 900)
_MESSAGE = re.compile(r":CONSOLE[:(]\d+\)?\] (.*)")
_LONGEST_S = 300


@dataclass(frozen=True)
class Browser:
    program: str

    def look(self, page, profile, *words, scheme=LIGHT, size=DESK):
        """Load a page; what it printed to its console, and what was asked for with `words`."""
        root = ["--no-sandbox"] if os.geteuid() == 0 else []
        command = [
            self.program,
            "--headless",
            "--disable-gpu",
            "--hide-scrollbars",
            "--enable-logging=stderr",
            "--v=0",
            f"--user-data-dir={profile}",
            f"--window-size={size[0]},{size[1]}",
            f"--blink-settings=preferredColorScheme={scheme}",
            *root,
            *words,
            Path(page).absolute().as_uri(),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LONGEST_S, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        return _MESSAGE.findall(done.stderr), done.stdout
