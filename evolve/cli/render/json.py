"""Records as plain values, for ``--json``: with the names of `archive.records`."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

import click

from kbevolve.archive.record_json import plain


def print_json_line(value: object, file: TextIO | None = None) -> None:
    """Print one JSON object as one line, on standard output or to a file.

    In ASCII: a message may contain characters that some readers take for line ends (U+2028), or halves of surrogate
    pairs, which no terminal accepts.
    """
    click.echo(json.dumps(plain(value), ensure_ascii=True, allow_nan=False), file=file)


def print_json(value: object) -> None:
    """Print records, or lists and mappings of them, as indented JSON."""
    click.echo(json.dumps(plain(value), indent=2, ensure_ascii=False))


@contextmanager
def reserved_output() -> Iterator[TextIO]:
    """Standard output as a file for the caller alone; what anything else writes there goes to standard error.

    That holds for other processes, too: a problem's file may print when it is imported.
    """
    sys.stdout.flush()
    with open(os.dup(1), "w", encoding="utf-8") as kept:
        os.dup2(2, 1)
        try:
            yield kept
        finally:
            sys.stdout.flush()
            os.dup2(kept.fileno(), 1)
