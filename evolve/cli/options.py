"""Command-line options that several commands share."""

from pathlib import Path

import click

#: The archive without --archive.
DEFAULT_ARCHIVE = Path("kbevolve.db")

archive_option = click.option(
    "--archive",
    "archive_path",
    type=click.Path(dir_okay=False, path_type=Path),
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
    help="A built-in problem (L1/matmul), a file in KernelBench's format, or kernelbench:LEVEL/NUMBER.",
)

kernelbench_option = click.option(
    "--kernelbench",
    "kernelbench_dir",
    type=click.Path(file_okay=False, path_type=Path),
    envvar="KERNELBENCH",
    show_envvar=True,
    help="A checkout of KernelBench, for --problem kernelbench:LEVEL/NUMBER.",
)

json_line_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object, in one line, last on standard output."
)

record_option = click.option(
    "--record",
    "record_to",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the replies of the models to FILE, for --replay.",
)

replay_option = click.option(
    "--replay",
    "replay_from",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Take the replies from FILE instead of a model, without key and network. Use the archive of the recorded run: "
    "its measurements are in the prompts.",
)


def archive_words(path: Path) -> str:
    """`` --archive FILE`` for a command that is shown; "" for the default."""
    return "" if path == DEFAULT_ARCHIVE else f" --archive {path}"
