"""What a shell proposes for problems, runs, kernels and settings: click asks these functions.

A completion is silent: without an archive, or with one that cannot be read, nothing is proposed.
"""

from collections.abc import Iterable

from click import Context, Parameter
from click.shell_completion import CompletionItem

from kbevolve.archive.store import Archive
from kbevolve.configs.catalog import builtin_names
from kbevolve.configs.errors import ArchiveError
from kbevolve.configs.settings import Settings

#: Words that stand for the newest run.
_LATEST = "latest"


def complete_problems(context: Context, parameter: Parameter, begun: str) -> list[CompletionItem]:
    """Built-in problems; files, where none begins so."""
    return _items(builtin_names(), begun) or [CompletionItem(begun, type="file")]


def complete_runs(context: Context, parameter: Parameter, begun: str) -> list[CompletionItem]:
    """Ids of runs, the newest first."""
    try:
        with _archive(context) as archive:
            return _items([_LATEST, *archive.runs.ids(begun)], begun)
    except ArchiveError:
        return []


def complete_kernels(context: Context, parameter: Parameter, begun: str) -> list[CompletionItem]:
    """Ids of kernels, the newest first."""
    try:
        with _archive(context) as archive:
            return _items(archive.kernels.ids(begun), begun)
    except ArchiveError:
        return []


def complete_either(context: Context, parameter: Parameter, begun: str) -> list[CompletionItem]:
    """Ids of runs and kernels."""
    return complete_runs(context, parameter, begun) + complete_kernels(context, parameter, begun)


def complete_settings(context: Context, parameter: Parameter, begun: str) -> list[CompletionItem]:
    """Names of settings, and of their sections."""
    names = Settings.names()
    return _items([*dict.fromkeys(name.partition(".")[0] for name in names if "." in name), *names], begun)


def complete_assignments(context: Context, parameter: Parameter, begun: str) -> list[CompletionItem]:
    """``search.islands=``, for ``--set``."""
    return _items([f"{name}=" for name in Settings.names()], begun)


def _items(names: Iterable[str], begun: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in names if name.startswith(begun)]


def _archive(context: Context) -> Archive:
    return Archive(context.params["archive_path"], create=False, read_only=True)
