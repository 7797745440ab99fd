"""Records as plain values, for ``--json``: with the names of `archive.records`."""

import json

import click

from kbevolve.archive.record_json import plain


def print_json_line(value: object) -> None:
    """Print one JSON object as one line, last on standard output.

    In ASCII: a message may contain characters that some readers take for line ends (U+2028), or halves of surrogate
    pairs, which no terminal accepts.
    """
    click.echo(json.dumps(plain(value), ensure_ascii=True, allow_nan=False))


def print_json(value: object) -> None:
    """Print records, or lists and mappings of them, as indented JSON."""
    click.echo(json.dumps(plain(value), indent=2, ensure_ascii=False))
