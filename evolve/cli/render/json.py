"""Records as plain values, for ``--json``: with the names of `archive.records`."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from functools import wraps
from typing import Any, TextIO

import click

from kbevolve.archive.record_json import plain

#: Where the running command keeps the file that its JSON goes to.
_RESERVED = f"{__name__}.reserved"


def print_json_line(value: object, file: TextIO | None = None) -> None:
    """Print one JSON object as one line, on standard output or to a file.

    In ASCII: a message may contain characters that some readers take for line ends (U+2028), or halves of surrogate
    pairs, which no terminal accepts.
    """
    click.echo(json.dumps(plain(value), ensure_ascii=True, allow_nan=False), file=file or json_output())


def print_json(value: object) -> None:
    """Print records, or lists and mappings of them, as indented JSON."""
    click.echo(json.dumps(plain(value), indent=2, ensure_ascii=False), file=json_output())


def json_output() -> TextIO | None:
    """The file that is reserved for the JSON of the running command; None for standard output as it is."""
    context = click.get_current_context(silent=True)
    file: TextIO | None = context.meta.get(_RESERVED) if context else None
    return file


def reserving(command: Callable[..., Any]) -> Callable[..., Any]:
    """A command whose standard output has its JSON alone, if `as_json` (a command without it prints JSON always)."""

    @wraps(command)
    def called(*arguments: Any, **options: Any) -> Any:
        if not options.get("as_json", True):
            return command(*arguments, **options)
        with reserved_output() as file:
            click.get_current_context().meta[_RESERVED] = file
            return command(*arguments, **options)

    return called


@contextmanager
def reserved_output() -> Iterator[TextIO]:
    """Standard output as a file for the caller alone; what anything else writes there goes to standard error.

    That holds for other processes, too: a problem's file may print when it is imported.
    """
    given: TextIO = sys.stdout
    given.flush()
    if given is not sys.__stdout__:  # who called us in this process reads that
        with redirect_stdout(sys.stderr):
            yield given
        return
    with open(os.dup(1), "w", encoding="utf-8") as kept:
        os.dup2(2, 1)
        try:
            yield kept
        finally:
            given.flush()
            os.dup2(kept.fileno(), 1)
