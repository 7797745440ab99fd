"""Lines, fields and tables: what fits a terminal, complete plain lines in a pipe, no control characters in either."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Generic, TypeVar

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kbevolve.evolve.cli.render import console
from kbevolve.evolve.cli.verbosity import Verbosity, verbosity

Record = TypeVar("Record")


#: Blanks between columns, and characters that are left of a flexible column at least.
_GAP, _CUT = 2, 12


@dataclass(frozen=True, slots=True)
class Column(Generic[Record]):
    """One column of a table."""

    name: str
    #: The cell of a record.
    cell: Callable[[Record], Text | str | int]
    _: KW_ONLY
    #: Aligned at the right, for numbers.
    right: bool = False
    #: Hidden on terminals narrower than this (columns of characters), and where the table has no room: columns of a
    #: larger least width first, then the left ones. 0 never.
    least_width: int = 0
    #: May be cut with an ellipsis; the other columns are never cut.
    flexible: bool = False


def printable(text: str) -> str:
    """The text without control characters: notes and messages are untrusted."""
    return "".join(character for character in text if character.isprintable() or character in "\n\t")


def say(console: Console, line: str, style: str = "") -> None:
    """Print a line of prose, never as markup: a note may hold "[0]"."""
    console.print(Text(printable(line), style=style), soft_wrap=True)


def note(console: Console, line: str) -> None:
    """Print a line that is no result, unless the user wants results only (`verbosity`)."""
    if verbosity() is not Verbosity.QUIET:
        say(console, line, "dim")


def announce(line: str) -> None:
    """Say on a terminal what is about to be done, before a silence: nothing may be redrawn while kernels are timed."""
    ours = console.Console(stderr=True)
    if ours.is_terminal:
        note(ours, f"{line} …")


def explain(console: Console, text: str) -> None:
    """Print what a table means, unless the user wants results only: wrapped between words on a terminal, one line in a
    pipe."""
    if verbosity() is Verbosity.QUIET:
        return
    console.print(Text(text, style="dim"), soft_wrap=not console.is_terminal)


def print_fields(console: Console, fields: Mapping[str, str | Text]) -> None:
    """Print the names and values that are not empty, in two columns; long values wrap within theirs."""
    shown = {name: value for name, value in fields.items() if value}
    if console.is_terminal:
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column(overflow="fold")
        for name, value in shown.items():
            grid.add_row(name, value if isinstance(value, Text) else Text(printable(value)))
        console.print(grid)
    else:
        width = max(map(len, shown))
        for name, value in shown.items():
            click.echo(f"{name:<{width}}  {printable(str(value)).replace(chr(10), chr(10) + ' ' * (width + 2))}")


def print_table(console: Console, columns: Sequence[Column[Record]], records: Iterable[Record]) -> None:
    """Print a row for each record.

    On a terminal, columns that do not fit are left out or cut. In a pipe every column is whole and one line is one
    row, with at least two blanks between cells, and "-" for an empty cell, so that grep, cut and awk work.
    """
    rows = [[_text(column.cell(record)) for column in columns] for record in records]
    if console.is_terminal:
        console.print(_terminal_table(console, columns, rows))
    else:
        for line in _plain_lines(columns, rows):
            click.echo(line, file=console.file)


def _text(cell: Text | str | int) -> Text:
    # One line, cut with an ellipsis where the column is too narrow.
    text = cell.copy() if isinstance(cell, Text) else Text(printable(" ".join(str(cell).split())))
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def _terminal_table(console: Console, columns: Sequence[Column[Record]], rows: Sequence[Sequence[Text]]) -> Table:
    table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, _GAP, 0, 0))
    widths = [max([len(column.name), *(row[index].cell_len for row in rows)]) for index, column in enumerate(columns)]
    shown = _fitting(console.width, columns, widths)
    for index in shown:
        column = columns[index]
        table.add_column(
            column.name,
            justify="right" if column.right else "left",
            no_wrap=not column.flexible,  # rich takes width from columns that may wrap, and crops the others
            min_width=None if column.flexible else widths[index],
        )
    for row in rows:
        table.add_row(*(row[index] for index in shown))
    return table


def _fitting(width: int, columns: Sequence[Column[Record]], widths: Sequence[int]) -> list[int]:
    """The columns that a terminal has room for."""
    shown = [index for index, column in enumerate(columns) if width >= column.least_width]
    least = [
        min(natural, _CUT) if column.flexible else natural for column, natural in zip(columns, widths, strict=True)
    ]
    while sum(least[index] + _GAP for index in shown) - _GAP > width:
        first = max(shown, key=lambda index: columns[index].least_width)
        if not columns[first].least_width:
            break
        shown.remove(first)
    return shown


def _plain_lines(columns: Sequence[Column[Record]], rows: Sequence[Sequence[Text]]) -> Iterable[str]:
    cells = [[column.name.replace(" ", "_") for column in columns]]
    cells += [[" ".join(cell.plain.split()) or "-" for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        aligned = (
            cell.rjust(width) if column.right else cell.ljust(width)
            for cell, width, column in zip(row, widths, columns, strict=True)
        )
        yield "  ".join(aligned).rstrip()
