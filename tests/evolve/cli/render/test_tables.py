"""Tables: whole lines in a pipe, columns that fit on a terminal, nothing a terminal would obey."""

import io

import pytest
from rich.console import Console
from rich.text import Text

from kbevolve.evolve.cli.render.kernel import print_source
from kbevolve.evolve.cli.render.tables import Column, announce, explain, print_table, printable

COLUMNS: tuple[Column[tuple[str, str | Text, str, str]], ...] = (
    Column("kernel", lambda row: row[0]),
    Column("best speedup", lambda row: row[1], right=True),
    Column("device", lambda row: row[2], least_width=100),
    Column("what", lambda row: row[3], flexible=True),
)
ROWS = (
    ("157de9615eeefc4c", "0.15×", "cpu", "naive"),
    (
        "d9fc9b5203b2dffd",
        Text("12.50×", style="green"),
        "",
        "[0] a note that is far longer than a terminal is wide, " * 3,
    ),
)


def on_terminal(width: int) -> str:
    out = io.StringIO()
    print_table(Console(file=out, force_terminal=True, width=width, color_system=None), COLUMNS, ROWS)
    return out.getvalue()


def test_a_pipe_gets_whole_lines_that_awk_can_split() -> None:
    pipe = io.StringIO()
    print_table(Console(file=pipe, force_terminal=False, width=20), COLUMNS, ROWS)
    head, first, second = pipe.getvalue().splitlines()
    assert head.split() == ["kernel", "best_speedup", "device", "what"]
    assert first == "157de9615eeefc4c         0.15×  cpu     naive"
    assert second.split()[:3] == ["d9fc9b5203b2dffd", "12.50×", "-"]
    assert second.endswith(ROWS[1][3].strip())


@pytest.mark.parametrize("width", [60, 80, 120, 260])
def test_a_terminal_gets_lines_that_fit(width: int) -> None:
    lines = on_terminal(width).splitlines()
    assert len(lines) == 3
    assert all(len(line) <= width for line in lines)
    assert all(kernel in on_terminal(width) for kernel in ("157de9615eeefc4c", "d9fc9b5203b2dffd", "12.50×"))
    assert ("device" in lines[0]) == (width >= 100)
    assert lines[2].rstrip().endswith("…") == (width < 260)


@pytest.mark.parametrize(
    ("width", "shown"), [(80, ["run", "best"]), (90, ["run", "best", "state"]), (130, list("rbsd"))]
)
def test_a_column_without_room_is_left_out_and_never_cropped(width: int, shown: list[str]) -> None:
    columns: tuple[Column[str], ...] = (
        Column("run", lambda row: "gemm_bias_relu-20261123-154334-50e0"),
        Column("best", lambda row: "0.763× (confirmed) [0.626, 0.929]", right=True),
        Column("state", lambda row: "evaluations", least_width=78),
        Column("device", lambda row: "cpu/AMD EPYC avx2/2 threads", least_width=79, flexible=True),
    )
    out = io.StringIO()
    print_table(Console(file=out, force_terminal=True, width=width, color_system=None), columns, ["row"])
    head, line = out.getvalue().splitlines()
    assert [name[: len(one)] for name, one in zip(head.split(), shown, strict=True)] == shown
    assert line.startswith("gemm_bias_relu-20261123-154334-50e0  0.763× (confirmed) [0.626, 0.929]")
    assert ("evaluations" in line) == (len(shown) > 2)


def test_nothing_is_obeyed_by_a_terminal() -> None:
    assert printable("a\x1b[2J\x07b\n\tc") == "a[2Jb\n\tc"
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=80, color_system=None)
    print_table(console, [Column("what", lambda row: row)], ["a\x1b[2J[red]b"])
    assert "a[2J[red]b" in out.getvalue()


@pytest.mark.parametrize("width", [60, 120])
def test_an_explanation_is_wrapped_between_words_on_a_terminal_only(width: int) -> None:
    words = "Fraction of the fastest possible speed after so many evaluations, " * 4
    shown = io.StringIO()
    explain(Console(file=shown, force_terminal=True, width=width, color_system=None), words)
    assert all(len(line) <= width for line in shown.getvalue().splitlines())
    assert shown.getvalue().split() == words.split()
    piped = io.StringIO()
    explain(Console(file=piped, width=width), words)
    assert piped.getvalue() == words + "\n"


@pytest.mark.parametrize("end", ["", "\n"])
def test_source_that_is_copied_from_a_terminal_is_the_source(end: str) -> None:
    source = "x = 1  # " + "a long remark " * 20 + "\n\n\ndef f():\n    return x" + end
    out = io.StringIO()
    print_source(Console(file=out, force_terminal=True, width=80, color_system=None), source)
    assert out.getvalue() == source.removesuffix("\n") + "\n"


def test_before_a_silence_a_terminal_hears_what_is_done(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    announce("Judging 3f2a")
    assert capsys.readouterr() == ("", ""), "in a pipe no person waits"
    monkeypatch.setenv("FORCE_COLOR", "1")
    announce("Judging 3f2a")
    out, err = capsys.readouterr()
    assert (out, "Judging 3f2a …" in err) == ("", True)
