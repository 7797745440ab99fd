"""Tables: columns that fit a terminal, complete plain lines in a pipe."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a table."""

    name: str
    #: Aligned at the right, for numbers.
    right: bool = False
    #: Hidden on terminals narrower than this (columns of characters); 0 never.
    least_width: int = 0
    #: May be cut with an ellipsis; the other columns are never cut.
    flexible: bool = False


def print_table(console: Console, columns: Sequence[Column], rows: Sequence[Sequence[Text | str]]) -> None:
    """Print rows of as many cells as there are columns.

    On a terminal, columns that do not fit are left out or cut. In a pipe every column is whole and one line is one
    row, with at least two blanks between cells, and "-" for an empty cell, so that grep, cut and awk work.
    """
    if console.is_terminal:
        console.print(_terminal_table(console, columns, rows))
    else:
        for line in _plain_lines(columns, rows):
            print(line)


def printable(text: str) -> str:
    """The text without control characters: notes and messages are untrusted."""
    return "".join(character for character in text if character.isprintable() or character in "\n\t")


def _terminal_table(console: Console, columns: Sequence[Column], rows: Sequence[Sequence[Text | str]]) -> Table:
    table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    shown = [index for index, column in enumerate(columns) if console.width >= column.least_width]
    for index in shown:
        column = columns[index]
        table.add_column(
            column.name,
            justify="right" if column.right else "left",
            no_wrap=not column.flexible,  # rich takes width from columns that may wrap, and crops the others
            min_width=None if column.flexible else _width(column, index, rows),
        )
    for row in rows:
        table.add_row(*(_text(row[index]) for index in shown))
    return table


def _plain_lines(columns: Sequence[Column], rows: Sequence[Sequence[Text | str]]) -> list[str]:
    cells = [[column.name.replace(" ", "_") for column in columns]]
    cells += [[" ".join(_text(cell).plain.split()) or "-" for cell in row] for row in rows]
    widths = [max(len(row[index]) for row in cells) for index in range(len(columns))]
    return [
        "  ".join(
            cell.rjust(width) if column.right else cell.ljust(width)
            for cell, width, column in zip(row, widths, columns, strict=True)
        ).rstrip()
        for row in cells
    ]


def _width(column: Column, index: int, rows: Sequence[Sequence[Text | str]]) -> int:
    return max([len(column.name), *(_text(row[index]).cell_len for row in rows)])


def _text(cell: Text | str) -> Text:
    # Never as markup: a note may hold "[0]". One line, cut with an ellipsis where the column is too narrow.
    text = cell.copy() if isinstance(cell, Text) else Text(printable(" ".join(cell.split())))
    text.no_wrap, text.overflow = True, "ellipsis"
    return text
