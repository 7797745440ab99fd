"""KernelBench's recipe in words; every output says that it is no verdict of kbevolve."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text

from kbevolve.archive.formatting import as_times, interval_words, percent_words, time_words
from kbevolve.archive.report.scores import ProblemResult, share_names
from kbevolve.evaluators.recipe import EXCESSIVE, Outcome, RecipeVerdict
from kbevolve.evolve.cli.render.bench import (
    markdown_table,
    problem_name,
    remark,
    score_rows,
    share_columns,
    speedup_text,
)
from kbevolve.evolve.cli.render.console import Console
from kbevolve.evolve.cli.render.tables import Column, explain, print_table, say
from kbevolve.evolve.runs.recipe_bench import LABEL

_STYLES = {Outcome.CORRECT: "green", Outcome.INCORRECT: "red", Outcome.FAILED: "red"}
_EXPLANATION = (
    "fast_p: share of the n problems with a correct kernel more than p times as fast as eager with PyTorch's default "
    "flags. Geometric mean and median: over the correct kernels, in brackets the 95 % bootstrap interval."
)


def recipe_fields(verdict: RecipeVerdict) -> dict[str, str | Text]:
    """One verdict as fields."""
    compiled = "" if verdict.compiled else ", does not count as compiled"
    fields: dict[str, str | Text] = {
        "judge": LABEL,
        "outcome": Text(f"{verdict.outcome}{compiled}", style=_STYLES[verdict.outcome]),
        "message": verdict.message,
    }
    if verdict.speedup and verdict.kernel_ms and verdict.reference_ms:
        means = [time_words(times["mean"]) for times in (verdict.kernel_ms, verdict.reference_ms)]
        fields["its speedup"] = (
            f"{as_times(verdict.speedup)} eager with default flags: {means[0]}, eager {means[1]}, "
            f"{verdict.timing}, means of {verdict.kernel_ms['calls']:g} calls"
        )
    if verdict.is_excessive:
        fields["warning"] = f"KernelBench warns of a speedup above {EXCESSIVE:g}×: the kernel may be a hack"
    return fields


def print_recipe(console: Console, results: Sequence[ProblemResult], found: Mapping[str, Any]) -> None:
    """The tables of problems and of levels."""
    say(console, LABEL, "yellow")
    problems = [
        Column("problem", problem_name),
        Column("its speedup", speedup_text, right=True),
        Column("time", lambda one: time_words(one.time_ms), right=True, least_width=70),
        Column("correct", lambda one: f"{one.correct}/{one.evaluations}", right=True, least_width=80),
        Column("what", remark, flexible=True),
    ]
    print_table(console, problems, results)
    levels = [
        *share_columns(found),
        Column("geomean", lambda row: _average(row[1], "geomean"), right=True),
        Column("median", lambda row: _average(row[1], "median"), right=True, least_width=95),
    ]
    print_table(console, levels, score_rows(found))
    if count := found["all"]["not_judged"]:
        say(console, f"Not judged, and in no number: {count} of them.", "yellow")
    explain(console, _EXPLANATION)


def recipe_markdown(title: str, details: str, found: Mapping[str, Any], results: Sequence[ProblemResult]) -> str:
    """The same as Markdown."""
    shares = share_names(found["all"])
    rows = [
        (name, row["n"], row["correct"], *(percent_words(row[share]) for share in shares),
         _average(row, "geomean"), _average(row, "median"))
        for name, row in score_rows(found)
    ]  # fmt: skip
    problems = [
        (one.problem, one.title, speedup_text(one).plain, time_words(one.time_ms), f"{one.correct}/{one.evaluations}",
         remark(one))
        for one in results
    ]  # fmt: skip
    lines = [f"# {title}", "", f"**{LABEL}.**", "", details, ""]
    lines += markdown_table(("level", "n", "correct", *shares, "geomean", "median"), rows)
    lines += ["", _EXPLANATION, "", "## Problems", ""]
    lines += markdown_table(("problem", "name", "its speedup", "time", "correct", ""), problems)
    return "\n".join(lines) + "\n"


def _average(row: Mapping[str, Any], name: str) -> str:
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    mean = "–" if row[name] is None else as_times(row[name])
    return f"{mean} {interval_words(low, high)}" if low and high else mean
