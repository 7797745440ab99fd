"""How much the user wants to read: ``-q``, nothing, or ``-v``, anywhere on the command line."""

from enum import IntEnum

import click


class Verbosity(IntEnum):
    """What a command says besides its result."""

    QUIET = -1
    NORMAL = 0
    VERBOSE = 1


def verbosity() -> Verbosity:
    """What the options of the running command say; NORMAL outside of a command."""
    context = click.get_current_context(silent=True)
    chosen = context.find_root().params if context else {}
    return Verbosity(bool(chosen.get("verbose")) - bool(chosen.get("quiet")))
