"""Write docs/commands.md from the commands themselves: ``python -m docs.write_commands`` (a test compares it)."""

import inspect
from collections.abc import Iterator
from pathlib import Path

import click

from kbevolve.evolve.cli.main import cli

PAGE = Path(__file__).with_name("commands.md")
HEAD = """\
# Commands

Every command as its `--help` has it. [The command line](command-line.md) says what they have in common: completion,
exit codes, JSON, how much they print.

This page is written by `python -m docs.write_commands`.
"""


def page() -> str:
    """The whole page: a list of links, then a section for each command."""
    found = list(_commands(cli, "kbevolve"))
    links = "".join(f"- [`{path}`](#{path.replace(' ', '-')}): {_first(command)}\n" for path, command in found)
    return f"{HEAD}\n{links}{''.join(_section(path, command) for path, command in found)}"


def _commands(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    """All commands below a group, in the order of its help."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, "the group has listed it"
        if isinstance(command, click.Group):
            if command.invoke_without_command:
                yield f"{path} {name}", command
            yield from _commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def _first(command: click.Command) -> str:
    """The first paragraph of a command's help as one line."""
    return " ".join(inspect.cleandoc(command.help or "").partition("\n\n")[0].split())


def _section(path: str, command: click.Command) -> str:
    context = click.Context(command, info_name=path)
    words = [" ".join(one.split()) for one in inspect.cleandoc(command.help or "").replace("\b\n", "").split("\n\n")]
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    example = (command.epilog or "").removeprefix("Example: ")
    records = [
        one.get_help_record(context)
        for one in command.get_params(context)
        if isinstance(one, click.Option) and "--help" not in one.opts
    ]
    rows = "".join(f"| `{_cell(names)}` | {_cell(' '.join(text.split()))} |\n" for names, text in filter(None, records))
    body = "\n\n".join(map(_cell, words))
    table = f"| option | meaning |\n|---|---|\n{rows}\n" if rows else ""
    return f"\n## {path}\n\n{body}\n\nUsage: `{usage}`\n\n{table}Example: `{example}`\n"


def _cell(text: str) -> str:
    """Text that Markdown shows as it is, in a table, too."""
    return text.replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    PAGE.write_text(page())
