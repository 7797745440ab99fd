"""One kernel, one run, one lineage, shown on a terminal or in a pipe."""

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence

import click
from rich.syntax import Syntax
from rich.text import Text
from rich.tree import Tree

from kbevolve.archive.formatting import (
    CONFIRMED,
    NOT_STOPPED,
    as_times,
    comparison_words,
    confirmed_words,
    device_words,
    interval_words,
    launching_fields,
    over_eager,
    published_words,
    speedup_words,
    state_words,
    time_words,
    verdict_words,
)
from kbevolve.archive.lineage import Line
from kbevolve.archive.notes import Note
from kbevolve.archive.records import (
    Accuracy,
    Birth,
    BirthState,
    Confirmation,
    Evaluation,
    Idea,
    Kernel,
    Run,
    StopReason,
    Verdict,
)
from kbevolve.archive.run_queries import RunSummary, strategy_of
from kbevolve.configs.setting_facts import setting_facts
from kbevolve.evolve.cli.render.console import Console
from kbevolve.evolve.cli.render.formats import VERDICT_STYLE
from kbevolve.evolve.cli.render.tables import Column, explain, print_table, printable

Fields = dict[str, str | Text]

#: Reasons whose names say little.
_STOP_WORDS = {
    StopReason.GENERATIONS: "finished",
    StopReason.EVALUATOR: "judge failed",
    StopReason.PROPOSER: "model failed",
    StopReason.EXHAUSTED: "nothing new",
    StopReason.STAGNATION: "no progress",
    StopReason.NO_SEED: "no correct start",
}


def stop_words(reason: StopReason | None) -> str:
    """A word or two for tables: ``finished``, ``interrupted``, …"""
    if reason is None:
        return "open"
    return _STOP_WORDS.get(reason) or reason.name.lower().replace("_", " ")


def verdict_text(verdict: Verdict) -> Text:
    """The verdict in its colour."""
    return Text(verdict_words(verdict), style=VERDICT_STYLE[verdict])


def outcome(birth: Birth, evaluation: Evaluation | None) -> Text:
    """The verdict of an attempt, or why there is none."""
    if birth.kernel is None or birth.state in (BirthState.DUPLICATE, BirthState.NEAR_DUPLICATE):
        return Text(state_words(birth.state), style="dim")
    if evaluation is None:
        return Text("not judged yet", style="dim")
    return verdict_text(evaluation.verdict)


def kernel_fields(kernel: Kernel, births: Sequence[Birth], ideas: Mapping[str, Idea], problem: str) -> Fields:
    """A kernel's identity and origin; `problem` is that of the run of its first attempt."""
    named: Fields = {"kernel": f"{kernel.id}, {kernel.backend.value}, {len(kernel.source.splitlines())} lines"}
    if not births:
        return named
    birth, *others = births
    model, idea = "", ideas.get(birth.idea or "")
    if birth.model:
        tokens = f"{birth.prompt_tokens} + {birth.completion_tokens} tokens"
        model = f"{birth.model}, {tokens}, {birth.seconds:.1f} s"
    gain = f", expected {idea.expected_gain:g}×" if idea and idea.expected_gain else ""
    more = f" and {len(others) - 3} more" if len(others) > 3 else ""
    return named | {
        "problem": problem,
        "created in": f"{birth.run}, generation {birth.generation}, island {birth.island}",
        "made by": f"{birth.operator.value}: {birth.note}" if birth.note else birth.operator.value,
        "parents": ", ".join(birth.parents),
        "idea": f"{idea.title} ({idea.technique}{gain}). {idea.mechanism}" if idea else "",
        "model": model,
        "again in": ", ".join(f"{other.run}/g{other.generation}" for other in others[:3]) + more,
    }


def evaluation_fields(evaluation: Evaluation) -> Fields:
    """The judge's findings, without the profile (`render.profile`)."""
    timing, execution = evaluation.timing, evaluation.execution
    fields: Fields = {
        "device": f"{device_words(evaluation.device)}, {evaluation.precision}",
        "verdict": verdict_text(evaluation.verdict),
        "message": evaluation.message,
        "error": _error_words(evaluation.accuracy),
    }
    if timing.speedup is not None:
        times = f"{time_words(timing.time_ms)}, eager {time_words(timing.reference_ms)}"
        words = over_eager(speedup_words(evaluation), timing.speedup)
        fields["speedup"] = Text(f"{words}, {times}, {len(evaluation.blocks)} timed blocks", style="bold")
    if timing.comparison is not None:
        fields["comparison"] = comparison_words(timing.comparison, "eager", timing.speedup_low, timing.speedup_high)
    if timing.speedup_best is not None:
        fields["over best"] = f"{as_times(timing.speedup_best)} the fastest baseline, {timing.best_baseline}"
    fields |= launching_fields(evaluation)
    spent = ", ".join(f"{name} {seconds:.1f}" for name, seconds in execution.phases.items() if seconds >= 0.05)
    fields |= {
        "code shows": ", ".join(evaluation.compiled.traits or ()),
        "tags": ", ".join(evaluation.tags),
        "sandbox": execution.sandbox,
        "seconds": f"{execution.seconds:.1f} in all" + (f": {spent}" if spent else ""),
    }
    return fields


def _error_words(accuracy: Accuracy) -> str:
    """The largest error, against that of the reference itself; "" where nothing was compared."""
    if accuracy.error is None:
        return ""
    found = accuracy.precision_class
    words = f"{accuracy.error:.2g} against fp64, {f'as accurate as {found}' if found else 'more than rounding'}"
    if accuracy.reference_error is not None:
        words += f"; the reference's own {accuracy.reference_error:.2g}"
    if accuracy.worst_tile is not None:
        words += f"; worst tile {accuracy.worst_tile:.2g}"
    return f"{words}; KernelBench's allclose: {'yes' if accuracy.allclose else 'no'}"


def confirmation_fields(confirmation: Confirmation) -> Fields:
    """The result of a contest for a kernel."""
    times = f"{time_words(confirmation.time_ms)}, eager {time_words(confirmation.reference_ms)}"
    ratio = f"{as_times(confirmation.ratio)} {interval_words(confirmation.ratio_low, confirmation.ratio_high)}"
    words = comparison_words(
        confirmation.comparison, confirmation.rival or "eager", confirmation.ratio_low, confirmation.ratio_high, ratio
    )
    return {
        "measured again": f"{confirmation.purpose} after generation {confirmation.generation} of {confirmation.run}",
        "speedup": f"{confirmed_words(confirmation)}, {times}, {len(confirmation.blocks)} timed blocks",
        "comparison": words,
    }


def note_fields(notes: Sequence[Note]) -> Fields:
    """The notes of people, a line each."""
    return {"notes": "\n".join(one.text for one in notes)}


def run_fields(summary: RunSummary, tokens: tuple[int, int], notes: Sequence[Note] = ()) -> Fields:
    """The conditions and the results of a run."""
    run = summary.run
    return {
        "run": run.id,
        "problem": f"{run.problem_name} (text {run.problem})",
        "device": run.device,
        "started": run.created,
        "stopped": summary.stopped.value if summary.stopped else NOT_STOPPED,
        "generations": str(summary.generations),
        "attempts": f"{summary.births}, {summary.evaluated} kernels judged, {summary.correct} correct",
        "best": f"{published_words(summary.champion, summary.best)}  {summary.best_kernel or ''}".rstrip(),
        "tokens": f"{tokens[0]} sent, {tokens[1]} received" if any(tokens) else "",
        **note_fields(notes),
        "strategy": strategy_of(run),
        "seed": str(run.seed),
        "versions": ", ".join(f"{name} {version}" for name, version in run.versions.items()),
        "settings": "\n".join(_settings_lines(run)) or "all as by default",
    }


def print_source(console: Console, source: str, language: str = "python") -> None:
    """Print source: in the terminal's own colours, for any background; unchanged in a pipe.

    Long lines are left to the terminal, so that what is copied from it still compiles.
    """
    if console.is_terminal:
        colours = Syntax("", language, theme="ansi_dark", background_color="default")
        console.print(colours.highlight(printable(source)), soft_wrap=True, end="")
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


def gain_over_parent(birth: Birth, evaluations: Mapping[str, Evaluation]) -> float | None:
    """A kernel's speed over that of its main parent, or of the first parent that was correct; None without both."""
    speedups = (
        found.timing.speedup if (found := evaluations.get(kernel or "")) else None
        for kernel in (birth.kernel, *birth.parents)
    )
    speedup = next(speedups)
    before = next(filter(None, speedups), None)
    return speedup / before if speedup and before else None


def print_lineage(
    console: Console,
    line: Line,
    evaluations: Mapping[str, Evaluation],
    ideas: Mapping[str, Idea],
    confirmation: Confirmation | None = None,
) -> None:
    """Print a kernel's ancestors, newest first: a tree on a terminal, one row for each in a pipe.

    `confirmation` is what the run published of the kernel, None without it.
    """
    if console.is_terminal:
        published = f": {as_times(confirmation.speedup)} {CONFIRMED}" if confirmation else ""
        tree = Tree(Text(f"{line[0].birth.kernel} in {line[0].birth.run}{published}", style="bold"), guide_style="dim")
        _grow(tree, line, evaluations, ideas)
        console.print(tree)
        explain(console, "Speedup over eager at the first evaluation; gain over the parent.")
        return

    def found(birth: Birth) -> Evaluation | None:
        return evaluations.get(birth.kernel or "")

    def speedup(birth: Birth) -> str:
        evaluation = found(birth)
        return f"{evaluation.timing.speedup:.3f}" if evaluation and evaluation.timing.speedup is not None else ""

    def gain(birth: Birth) -> str:
        factor = gain_over_parent(birth, evaluations)
        return f"{factor:.3f}" if factor else ""

    columns: list[Column[tuple[int, Birth]]] = [
        Column("crossings", lambda one: one[0], right=True),
        Column("kernel", lambda one: one[1].kernel or ""),
        Column("generation", lambda one: one[1].generation, right=True, least_width=100),
        Column("island", lambda one: one[1].island, right=True, least_width=100),
        Column("operator", lambda one: one[1].operator.value),
        Column("verdict", lambda one: outcome(one[1], found(one[1])).plain.replace(" ", "_")),
        Column("first speedup", lambda one: speedup(one[1]), right=True),
        Column("gain", lambda one: gain(one[1]), right=True),
        Column("parents", lambda one: ",".join(one[1].parents), least_width=140),
        Column("what", lambda one: what(one[1], ideas), flexible=True),
    ]
    print_table(console, columns, _flat(line))


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
        gain = gain_over_parent(birth, evaluations)
        label.append(f"{f'{100 * (gain - 1):+.0f} %' if gain else '':>8}", style="dim")
        label.append(f"  {birth.kernel}  ").append(f"g{birth.generation:<3} {birth.operator.value:<8}", style="dim")
        label.append(printable(what(birth, ideas)))
        node = tree.add(label)
        for parent in ancestor.met:
            node.add(Text(f"crossed with {parent}, shown elsewhere", style="dim"))
        for branch in ancestor.branches:
            _grow(node.add(Text("crossed with", style="dim")), branch, evaluations, ideas)


def _flat(line: Line, depth: int = 0) -> Iterator[tuple[int, Birth]]:
    """Depth and birth of each ancestor."""
    for ancestor in line:
        yield depth, ancestor.birth
        for branch in ancestor.branches:
            yield from _flat(branch, depth + 1)


def what(birth: Birth, ideas: Mapping[str, Idea]) -> str:
    """The title of the idea and the change, in one line."""
    idea = ideas.get(birth.idea or "")
    return ": ".join(part for part in (idea.title if idea else "", " ".join(birth.note.split())) if part)


def _settings_lines(run: Run) -> list[str]:
    """``section.name=value`` lines, as ``--set`` takes them, of what differs from the defaults of this version."""
    defaults = {facts.name: facts.default for facts in setting_facts()}
    values: dict[str, object] = {}
    for name, value in json.loads(run.settings).items():
        values |= {f"{name}.{one}": item for one, item in value.items()} if isinstance(value, dict) else {name: value}
    own = {name: value for name, value in values.items() if name not in defaults or defaults[name] != value}
    return [f"{name}={json.dumps(value)}" for name, value in own.items()]
