"""Command-line options that several commands share."""

import shlex
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import click

from kbevolve.archive.report.style import FORMATS
from kbevolve.configs.errors import UsageError, nearest
from kbevolve.configs.fetch import fetched_folder
from kbevolve.evolve.cli.completion import complete_problems
from kbevolve.evolve.cli.render.json import reserving

#: The archive without --archive.
DEFAULT_ARCHIVE = Path("kbevolve.db")

FILE = click.Path(dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)

archive_option = click.option(
    "--archive",
    "archive_path",
    type=FILE,
    default=DEFAULT_ARCHIVE,
    envvar="KBEVOLVE_ARCHIVE",
    show_default=True,
    show_envvar=True,
    help="The SQLite file of all runs.",
)

problem_option = click.option(
    "--problem",
    "problem_name",
    required=True,
    metavar="NAME",
    shell_complete=complete_problems,
    help="A built-in problem (L1/matmul), a file in KernelBench's format, or kernelbench:LEVEL/NUMBER (or its name).",
)


def _one_name(context: click.Context, parameter: click.Parameter, argument: str | None) -> str:
    """The problem's name, from the argument or from the option before it."""
    option = context.params.pop("problem_option", None)
    if (name := argument or option) is None:
        raise click.UsageError(
            "name a problem, e.g. kbevolve run L1/matmul; `kbevolve problems ls` lists them", context
        )
    if argument and option:
        raise click.UsageError(f"two problems: {option} and {argument}; name one", context)
    return name


def problem_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    """A problem as an argument or as ``--problem``."""
    option = click.option(
        "--problem",
        "problem_option",
        is_eager=True,
        metavar="NAME",
        help="The same as the argument PROBLEM.",
        shell_complete=complete_problems,
    )
    argument = click.argument(
        "problem_name", required=False, callback=_one_name, metavar="[PROBLEM]", shell_complete=complete_problems
    )
    return option(argument(command))


def _or_fetched(context: click.Context, parameter: click.Parameter, folder: Path | None) -> Path | None:
    """The folder that was named, else the one of `kbevolve problems fetch`."""
    return folder or (found if (found := fetched_folder()).is_dir() else None)


kernelbench_option = click.option(
    "--kernelbench",
    "kernelbench_dir",
    type=FOLDER,
    envvar="KERNELBENCH",
    show_envvar=True,
    callback=_or_fetched,
    help="A checkout of KernelBench, for kernelbench:LEVEL/NUMBER.  [default: the one of `kbevolve problems fetch`]",
)


def json_option_with(words: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """``--json``: the JSON is then all that is on standard output."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        return click.option("--json", "as_json", is_flag=True, help=words)(reserving(command))

    return decorate


json_option = json_option_with("Print JSON for scripts; everything else goes to standard error.")
json_line_option = json_option_with("Print one JSON object, in one line; everything else goes to standard error.")

events_option = click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print events as JSON, one object a line (docs/events.md); everything else goes to standard error.",
)

log_option = click.option(
    "--log-file",
    type=click.File("a", encoding="utf-8", lazy=False),
    metavar="FILE",
    help="Append to FILE what -v prints, each line with its moment; the terminal stays as it is.",
)

record_option = click.option(
    "--record", "record_to", type=FILE, metavar="FILE", help="Write the replies of the models to FILE, for --replay."
)

replay_option = click.option(
    "--replay",
    "replay_from",
    type=FILE,
    metavar="FILE",
    help="Take the replies from FILE instead of a model, without key and network. Use the archive of the recorded run: "
    "its measurements are in the prompts.",
)


judge_option = click.option(
    "--judge",
    type=click.Choice(["kbevolve", "kernelbench"]),
    default="kbevolve",
    show_default=True,
    help="kernelbench: KernelBench's recipe, for comparison only (docs/kernelbench.md).",
)


def figure_option(default: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """``--output`` of a command that draws."""
    words = f"The file to write: {', '.join(FORMATS)}."
    return click.option(
        "-o", "--output", type=FILE, default=Path(default), show_default=True, metavar="FILE", help=words
    )


def names_in(text: str, known: Collection[str], what: str) -> list[str]:
    """The known names in a list with commas, each once.

    Raises:
        UsageError: one is not known, or there is none.
    """
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in names:
        if name not in known:
            raise UsageError(f"no {what} {name!r}. {nearest(name, known)}")
    if not names:
        raise UsageError(f"no {what} is named; give some of {', '.join(known)}")
    return names


def archive_words(path: Path) -> str:
    """`` --archive FILE`` for a command that is shown; "" for the default."""
    return "" if path == DEFAULT_ARCHIVE else f" --archive {shlex.quote(str(path))}"
