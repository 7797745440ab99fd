"""A benchmark in words: the table of problems, the table of levels, and both as Markdown and CSV."""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text

from kbevolve.archive.formatting import (
    as_times,
    counted,
    duration_words,
    interval_words,
    percent_words,
    time_words,
)
from kbevolve.archive.parts import flat
from kbevolve.archive.report.scores import BASELINES, ProblemResult, share_names
from kbevolve.configs.catalog import KERNELBENCH
from kbevolve.evolve.cli.render.console import Console
from kbevolve.evolve.cli.render.formats import counts_words
from kbevolve.evolve.cli.render.tables import Column, explain, print_table, say

#: Characters of a title in the table.
_TITLE = 20
#: Name of a row, and its score.
ScoreRow = tuple[str, Mapping[str, Any]]
_EXPLANATION = (
    "fast_p: share of the n judged problems with a correct kernel more than p times as fast as eager. Speedups are "
    "geometric means over the correct kernels, in brackets the 95 % bootstrap interval: over eager with strict flags "
    "(no TF32 unless the task asks for it), over eager with PyTorch's default flags, and over the best of eager, "
    "torch.compile and CUDA graphs at the task's precision. Floor: median of the time at the roofline over the "
    "kernel's time."
)


def print_problems(console: Console, results: Sequence[ProblemResult]) -> None:
    """The table of problems."""
    print_table(
        console,
        [
            Column("problem", problem_name),
            Column("over eager", speedup_text, right=True),
            Column("over best", lambda one: _times(one.over_best), right=True, least_width=90),
            Column("over default", lambda one: _times(one.over_default), right=True, least_width=110),
            Column("time", lambda one: time_words(one.time_ms), right=True, least_width=100),
            Column("class", lambda one: one.precision_class or "", least_width=105),
            Column("floor", lambda one: percent_words(one.floor_share), right=True, least_width=100),
            Column("kernels", lambda one: f"{one.correct}/{one.evaluations}", right=True, least_width=80),
            Column("what", remark, flexible=True),
        ],
        results,
    )


def print_scores(console: Console, found: Mapping[str, Any]) -> None:
    """The table of levels, and what its columns are."""
    rows = score_rows(found)
    columns = [
        *share_columns(found),
        Column("over eager", lambda row: _average(row[1], "geomean_eager"), right=True),
        Column("over best", lambda row: _times(row[1]["geomean_best"]), right=True),
        Column("over default", lambda row: _times(row[1]["geomean_default"]), right=True, least_width=90),
        Column("median", lambda row: _times(row[1]["median_eager"]), right=True, least_width=95),
        Column("floor", lambda row: percent_words(row[1]["floor_share"]), right=True, least_width=85),
        Column("kernels", lambda row: row[1]["evaluations"], right=True, least_width=110),
        Column("device", lambda row: duration_words(row[1]["device_seconds"]), right=True, least_width=110),
    ]
    print_table(console, columns, rows)
    every = found["all"]
    classes = counts_words(every["precision_classes"])
    cost = [counted(every["evaluations"], "kernel"), f"{duration_words(every['device_seconds'])} of device time"]
    if every["tokens"]:
        cost.append(counted(every["tokens"], "token"))
        cost.append("dollars unknown" if every["dollars"] is None else f"${every['dollars']:.2f}")
    say(console, f"Cost: {', '.join(cost)}.{f' Precision classes: {classes}.' if classes else ''}")
    if every["not_judged"]:
        say(console, f"Not judged, and in no number: {counted(every['not_judged'], 'problem')}.", "yellow")
    explain(console, _EXPLANATION)


def share_columns(found: Mapping[str, Any]) -> list[Column[ScoreRow]]:
    """The first columns of a table of levels: how many problems, and which share of them."""
    return [
        Column("level", lambda row: row[0]),
        Column("n", lambda row: row[1]["n"], right=True),
        Column("correct", lambda row: row[1]["correct"], right=True),
        *(
            Column(name, lambda row, name=name: percent_words(row[1][name]), right=True)  # type: ignore[misc]
            for name in share_names(found["all"])
            if name != "fast_0"
        ),
    ]


def score_rows(found: Mapping[str, Any]) -> list[ScoreRow]:
    """The rows of the table of levels: each level, all, and the sound problems where some have a flaw."""
    rows: list[ScoreRow] = list(found["levels"].items())
    if len(rows) != 1:
        rows.append(("all", found["all"]))
    sound = found["without_flawed"]
    if sound["n"] != found["all"]["n"]:
        rows.append(("sound", sound))
    return rows


def as_markdown(title: str, details: str, found: Mapping[str, Any], results: Sequence[ProblemResult]) -> str:
    """Both tables, with every problem that is flawed or was not judged named."""
    lines = [f"# {title}", "", details, ""]
    shares = share_names(found["all"])
    names = ("level", "n", "correct", *shares, "over eager", "default flags", "best baseline", "median", "floor")
    lines += markdown_table(
        names,
        [
            (name, row["n"], row["correct"], *(percent_words(row[share]) for share in shares),
             *(_average(row, f"geomean_{baseline}") for baseline in BASELINES), _average(row, "median_eager"),
             percent_words(row["floor_share"]))
            for name, row in score_rows(found)
        ],
    )  # fmt: skip
    lines += ["", _EXPLANATION, "", "## Problems", ""]
    lines += markdown_table(
        ("problem", "name", "over eager", "default flags", "best baseline", "time", "class", "floor", "kernels", ""),
        [
            (one.problem, one.title, speedup_text(one).plain, _times(one.over_default), _times(one.over_best),
             time_words(one.time_ms), one.precision_class or "–", percent_words(one.floor_share),
             f"{one.correct}/{one.evaluations}", remark(one))
            for one in results
        ],
    )  # fmt: skip
    return "\n".join(lines) + "\n"


def as_csv(results: Sequence[ProblemResult]) -> str:
    """A row for each problem, with the names of `ProblemResult`; flaws are joined by blanks."""
    text = io.StringIO()
    rows = [{**flat(one), "flaws": " ".join(one.flaws)} for one in results]
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def result_words(one: ProblemResult) -> str:
    """One line when a problem is done."""
    outcome = speedup_text(one).plain if one.kernel else remark(one)
    return f"{outcome}, {counted(one.evaluations, 'kernel')}" if one.evaluations else outcome


def markdown_table(names: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """The lines of a table."""
    cells = [[" ".join(str(cell).split()).replace("|", "\\|") for cell in row] for row in (names, *rows)]
    lines = [f"| {' | '.join(row)} |" for row in cells]
    return [lines[0], f"|{'---|' * len(names)}", *lines[1:]]


def problem_name(one: ProblemResult) -> str:
    """``1/19 ReLU`` for a problem of KernelBench, whose name is a number."""
    number = one.problem.removeprefix(KERNELBENCH)
    if number == one.problem:
        return one.problem
    return f"{number} {one.title if len(one.title) <= _TITLE else f'{one.title[: _TITLE - 1]}…'}"


def remark(one: ProblemResult) -> str:
    """What is the matter with a problem; "" for nothing."""
    flaws = f"flawed: {', '.join(one.flaws)}" if one.flaws else ""
    if one.not_judged:
        return f"not judged: {one.not_judged}"
    return "; ".join(part for part in (one.failure if one.kernel is None else "", flaws) if part)


def speedup_text(one: ProblemResult) -> Text:
    """The speedup, with its interval where there is one."""
    if one.speedup is None and one.kernel:
        return Text("not timed", style="dim")
    if one.speedup is None:
        return Text("–" if one.not_judged else "none", style="dim" if one.not_judged else "red")
    interval = f" {interval_words(one.speedup_low, one.speedup_high)}" if one.speedup_low and one.speedup_high else ""
    return Text(f"{as_times(one.speedup)}{interval}", style="green" if one.speedup > 1 else "")


def _average(row: Mapping[str, Any], name: str) -> str:
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return f"{_times(row[name])}{f' {interval_words(low, high)}' if low and high else ''}"


def _times(value: float | None) -> str:
    return "–" if value is None else as_times(value)
