"""One kernel, one run, one lineage, shown on a terminal or in a pipe."""

import difflib
import json
from collections.abc import Mapping, Sequence

import click
from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from kbevolve.archive.formatting import (
    as_times,
    confirmed_words,
    interval_words,
    published_words,
    speedup_words,
    time_words,
    verdict_words,
)
from kbevolve.archive.lineage import Line
from kbevolve.archive.records import (
    Birth,
    BirthState,
    Comparison,
    Confirmation,
    Evaluation,
    Idea,
    Kernel,
    Run,
    StopReason,
)
from kbevolve.archive.run_queries import RunSummary, strategy_of
from kbevolve.evolve.cli.render.formats import VERDICT_STYLE
from kbevolve.evolve.cli.render.tables import Column, print_table, printable

#: A run without a stop reason; the archive cannot distinguish the two.
NOT_STOPPED = "running, or its process was killed"


def stop_words(reason: StopReason | None) -> str:
    """A word or two for tables: ``finished``, ``interrupted``, …"""
    if reason is None:
        return "open"
    return "finished" if reason is StopReason.GENERATIONS else reason.name.lower().replace("_", " ")


def outcome(birth: Birth, evaluation: Evaluation | None) -> Text:
    """The verdict of an attempt, or why there is none."""
    if birth.kernel is None or birth.state in (BirthState.DUPLICATE, BirthState.NEAR_DUPLICATE):
        return Text(birth.state.value, style="dim")
    if evaluation is None:
        return Text("not judged yet", style="dim")
    return Text(verdict_words(evaluation.verdict), style=VERDICT_STYLE[evaluation.verdict])


def print_fields(console: Console, fields: Mapping[str, str | Text]) -> None:
    """Print names and values in two columns; long values wrap within theirs."""
    if console.is_terminal:
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column(overflow="fold")
        for name, value in fields.items():
            grid.add_row(name, value if isinstance(value, Text) else Text(printable(value)))
        console.print(grid)
    else:
        width = max(len(name) for name in fields)
        for name, value in fields.items():
            click.echo(f"{name:<{width}}  {printable(str(value)).replace(chr(10), chr(10) + ' ' * (width + 2))}")


def kernel_fields(
    kernel: Kernel, births: Sequence[Birth], ideas: Mapping[str, Idea], problems: Mapping[str, str]
) -> dict[str, str | Text]:
    """A kernel's identity and origin; `problems` maps run ids to names of problems."""
    fields: dict[str, str | Text] = {"kernel": f"{kernel.id}, {kernel.backend.value}, {_lines(kernel.source)} lines"}
    if not births:
        return fields
    birth = births[0]
    fields["problem"] = problems.get(birth.run, "?")
    fields["created in"] = f"{birth.run}, generation {birth.generation}, island {birth.island}"
    fields["made by"] = f"{birth.operator.value}: {birth.note}" if birth.note else birth.operator.value
    if birth.parents:
        fields["parents" if len(birth.parents) > 1 else "parent"] = ", ".join(birth.parents)
    idea = ideas.get(birth.idea or "")
    if idea is not None:
        gain = f", expected {idea.expected_gain:g}×" if idea.expected_gain else ""
        fields["idea"] = f"{idea.title} ({idea.technique}{gain}). {idea.mechanism}"
    if birth.model:
        fields["model"] = (
            f"{birth.model}, {birth.prompt_tokens} + {birth.completion_tokens} tokens, {birth.seconds:.1f} s"
        )
    if len(births) > 1:
        fields["again in"] = ", ".join(f"{other.run}/g{other.generation}" for other in births[1:4]) + (
            f" and {len(births) - 4} more" if len(births) > 4 else ""
        )
    return fields


def evaluation_fields(evaluation: Evaluation) -> dict[str, str | Text]:
    """The judge's findings, without the profile (`render.profile`)."""
    verdict = Text(verdict_words(evaluation.verdict), style=VERDICT_STYLE[evaluation.verdict])
    if evaluation.accuracy.error is not None:
        own = (
            f", the reference's own {evaluation.accuracy.reference_error:.1e}"
            if evaluation.accuracy.reference_error is not None
            else ""
        )
        tile = (
            f", worst tile {evaluation.accuracy.worst_tile:.1e}" if evaluation.accuracy.worst_tile is not None else ""
        )
        verdict.append(
            f", error {evaluation.accuracy.error:.1e} ({evaluation.accuracy.precision_class}{own}){tile}",
            style="default",
        )
    fields: dict[str, str | Text] = {"device": f"{evaluation.device}, {evaluation.precision}", "verdict": verdict}
    if evaluation.timing.speedup is not None:
        times = f"{time_words(evaluation.timing.time_ms)}, eager {time_words(evaluation.timing.reference_ms)}"
        fields["speedup"] = f"{speedup_words(evaluation)}, {times}, {len(evaluation.blocks)} timed blocks"
    fields |= comparison_fields(evaluation)
    if evaluation.compiled.traits:
        fields["code shows"] = ", ".join(evaluation.compiled.traits)
    if evaluation.tags:
        fields["tags"] = ", ".join(evaluation.tags)
    if evaluation.execution.sandbox:
        fields["sandbox"] = evaluation.execution.sandbox
    fields["took"] = (
        f"{evaluation.execution.seconds:.1f} s, of which building {evaluation.execution.build_seconds:.1f} s"
    )
    if evaluation.message:
        fields["message"] = evaluation.message
    return fields


def comparison_fields(evaluation: Evaluation) -> dict[str, str | Text]:
    """A correct kernel compared with eager, and with the fastest baseline if known."""
    fields: dict[str, str | Text] = {}
    if evaluation.timing.comparison is not None:
        fields["comparison"] = comparison_words(evaluation.timing.comparison, "eager")
    if evaluation.timing.speedup_best is not None:
        fields["over best"] = (
            f"{as_times(evaluation.timing.speedup_best)} the fastest baseline, {evaluation.timing.best_baseline}"
        )
    return fields


def comparison_words(comparison: Comparison, rival: str) -> str:
    """``faster than eager``, ``a tie with eager`` or ``slower than eager``."""
    return f"a tie with {rival}" if comparison is Comparison.TIE else f"{comparison.value} than {rival}"


def confirmation_fields(confirmation: Confirmation) -> dict[str, str | Text]:
    """The result of a contest for a kernel."""
    times = f"{time_words(confirmation.time_ms)}, eager {time_words(confirmation.reference_ms)}"
    fields: dict[str, str | Text] = {
        "measured again": f"{confirmation.purpose} after generation {confirmation.generation} of {confirmation.run}",
        "speedup": f"{confirmed_words(confirmation)}, {times}, {len(confirmation.blocks)} timed blocks",
    }
    rival = confirmation.rival or "eager"
    fields["comparison"] = (
        f"{comparison_words(confirmation.comparison, rival)}: {as_times(confirmation.ratio)} "
        f"{interval_words(confirmation.ratio_low, confirmation.ratio_high)} its speed"
    )
    return fields


def run_fields(summary: RunSummary, tokens: tuple[int, int]) -> dict[str, str | Text]:
    """The conditions and the results of a run."""
    run = summary.run
    fields: dict[str, str | Text] = {
        "run": run.id,
        "problem": f"{run.problem_name} (text {run.problem})",
        "device": run.device,
        "started": run.created,
        "stopped": summary.stopped.value if summary.stopped else NOT_STOPPED,
        "generations": str(summary.generations),
        "attempts": f"{summary.births}, {summary.evaluated} kernels judged, {summary.correct} correct",
        "best": f"{published_words(summary.champion, summary.best)}  {summary.best_kernel or ''}".rstrip(),
    }
    if any(tokens):
        fields["tokens"] = f"{tokens[0]} sent, {tokens[1]} received"
    fields["strategy"] = strategy_of(run)
    fields["seed"] = str(run.seed)
    fields["versions"] = ", ".join(f"{name} {version}" for name, version in run.versions.items())
    fields["settings"] = "\n".join(_settings_lines(run))
    return fields


def print_source(console: Console, source: str, language: str = "python") -> None:
    """Print source: in the terminal's own colours, for any background; unchanged in a pipe."""
    if console.is_terminal:
        console.print(
            Syntax(printable(source), language, theme="ansi_dark", background_color="default", word_wrap=True)
        )
    else:
        click.echo(source, nl=not source.endswith("\n"))


def unified_diff(older: Kernel, newer: Kernel, labels: Mapping[str, str]) -> str:
    """The diff of two sources, "" for equal ones; `labels` follow the ids."""
    return "\n".join(
        difflib.unified_diff(
            older.source.splitlines(),
            newer.source.splitlines(),
            f"{older.id}  {labels.get(older.id, '')}".rstrip(),
            f"{newer.id}  {labels.get(newer.id, '')}".rstrip(),
            lineterm="",
        )
    )


def print_lineage(
    console: Console, line: Line, evaluations: Mapping[str, Evaluation], ideas: Mapping[str, Idea]
) -> None:
    """Print a kernel's ancestors, newest first: a tree on a terminal, one row for each in a pipe."""
    if console.is_terminal:
        best = line[0].birth
        tree = Tree(Text(f"{best.kernel} in {best.run}", style="bold"), guide_style="dim")
        _grow(tree, line, evaluations, ideas)
        console.print(tree)
        return
    columns = [
        Column(name=name, right=name in ("depth", "generation", "island", "speedup"))
        for name in ("depth", "kernel", "generation", "island", "operator", "verdict", "speedup", "parents", "what")
    ]
    print_table(console, columns, list(_lineage_rows(line, evaluations, ideas, 0)))


def _grow(tree: Tree, line: Line, evaluations: Mapping[str, Evaluation], ideas: Mapping[str, Idea]) -> None:
    """Only crossings are indented, so that fifty generations stay readable."""
    for ancestor in line:
        birth = ancestor.birth
        evaluation = evaluations.get(birth.kernel or "")
        label = Text(no_wrap=True, overflow="ellipsis")
        speedup = evaluation.timing.speedup if evaluation else None
        if speedup is not None:
            label.append(f"{as_times(speedup):>12}", style="bold green" if speedup > 1 else "green")
        else:
            label.append(f"{outcome(birth, evaluation).plain:>12}", style="red")
        label.append(f"  {birth.kernel}  ").append(f"g{birth.generation:<3} {birth.operator.value:<8}", style="dim")
        label.append(printable(what(birth, ideas)))
        node = tree.add(label)
        for parent in ancestor.met:
            node.add(Text(f"crossed with {parent}, shown elsewhere", style="dim"))
        for branch in ancestor.branches:
            _grow(node.add(Text("crossed with", style="dim")), branch, evaluations, ideas)


def _lineage_rows(
    line: Line, evaluations: Mapping[str, Evaluation], ideas: Mapping[str, Idea], depth: int
) -> list[list[str | Text]]:
    rows: list[list[str | Text]] = []
    for ancestor in line:
        birth = ancestor.birth
        evaluation = evaluations.get(birth.kernel or "")
        speedup = f"{evaluation.timing.speedup:.3f}" if evaluation and evaluation.timing.speedup is not None else ""
        rows.append(
            [
                str(depth),
                birth.kernel or "",
                str(birth.generation),
                str(birth.island),
                birth.operator.value,
                outcome(birth, evaluation).plain.replace(" ", "_"),
                speedup,
                ",".join(birth.parents),
                what(birth, ideas),
            ]
        )
        for branch in ancestor.branches:
            rows += _lineage_rows(branch, evaluations, ideas, depth + 1)
    return rows


def what(birth: Birth, ideas: Mapping[str, Idea]) -> str:
    """The title of the idea and the change, in one line."""
    idea = ideas.get(birth.idea or "")
    return ": ".join(part for part in (idea.title if idea else "", " ".join(birth.note.split())) if part)


def _lines(source: str) -> int:
    return source.count("\n") + (not source.endswith("\n"))


def _settings_lines(run: Run) -> list[str]:
    """``section.name=value`` lines, as ``--set`` takes them."""
    lines = []
    for name, value in json.loads(run.settings).items():
        if isinstance(value, dict):
            lines += [f"{name}.{inner}={json.dumps(item)}" for inner, item in value.items()]
        else:
            lines.append(f"{name}={json.dumps(value)}")
    return lines
