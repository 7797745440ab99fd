"""The log of a run: what `-v` prints, each line with its moment."""

import io
from typing import TextIO

from kbevolve.archive.connection import now
from kbevolve.evolve.cli.render.console import Console


class StampedLines(io.TextIOBase):
    """Writes the moment before each line, and hands each to the system at once: a killed run has its log."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._begins = True

    def write(self, text: str) -> int:
        """Write text, which may end within a line."""
        for line in text.splitlines(keepends=True):
            self._file.write(f"{now()} {line}" if self._begins else line)
            self._begins = line.endswith("\n")
        self._file.flush()
        return len(text)


def log_console(file: TextIO | None) -> Console | None:
    """Where lines for the log are printed; None without a file."""
    return Console(file=StampedLines(file), force_terminal=False, color_system=None) if file is not None else None
