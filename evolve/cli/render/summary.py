"""The end of a run: the best kernels, the cost, the next commands."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path

from rich.text import Text

from kbevolve.archive.formatting import (
    CONFIRMED,
    as_times,
    counted,
    duration_words,
    interval_words,
    over_eager,
    published_words,
    time_words,
    verdict_words,
)
from kbevolve.archive.records import (
    Accuracy,
    Birth,
    Confirmation,
    Evaluation,
    Operator,
    ProblemCard,
    StopReason,
    Verdict,
)
from kbevolve.archive.run_view import RunView
from kbevolve.archive.standings import REFERENCE_WORDS
from kbevolve.evaluators.analysis.rates import percent, roofline_share
from kbevolve.evaluators.correctness.rule import SLACK
from kbevolve.evaluators.timing.baselines import DEFAULT_FLAGS, EAGER, Baseline, best, over_best
from kbevolve.evolve.cli.options import archive_words
from kbevolve.evolve.cli.render.console import Console
from kbevolve.evolve.cli.render.formats import count_words
from kbevolve.evolve.cli.render.tables import Column, note, print_table, say
from kbevolve.evolve.cli.verbosity import Verbosity, verbosity
from kbevolve.evolve.runs.session import Ending
from kbevolve.evolve.search.budget import LIMITS, Budget, Spent
from kbevolve.evolve.state.context import RunContext
from kbevolve.evolve.state.population import Population
from kbevolve.islands.island import Member

#: Kernels in the table, besides the starting kernels.
SHOWN = 5
#: Characters of a failed starting kernel's message.
MESSAGE = 160

#: A kernel of the table, its first attempt, and its newest contest.
_Shown = tuple[Member, Birth, Confirmation | None]
_COLUMNS: tuple[Column[_Shown], ...] = (
    Column("kernel", lambda one: one[0].kernel.id),
    Column("over eager", lambda one: _speedup(*one), right=True),
    Column("time", lambda one: time_words((one[2] or one[0].evaluation.timing).time_ms), right=True),
    Column(
        "eager", lambda one: time_words((one[2] or one[0].evaluation.timing).reference_ms), right=True, least_width=96
    ),
    Column("made by", lambda one: one[1].operator.value, least_width=90),
    Column("what", lambda one: one[1].note, flexible=True),
)


def print_summary(console: Console, context: RunContext, ending: Ending) -> None:
    """Print the table, the published kernel, the cost, the stop reason and the next commands."""
    archive, run, population = context.archive, context.run, ending.population
    if population is None:
        say(console, f"Run {run.id}: {ending.reason.value}.")
        return
    champion, view = archive.runs.champion(run.id), archive.run_view(run)
    confirmed = {one.kernel: one for one in archive.runs.confirmations(run.id)}
    card = archive.problems.card(run.problem, run.device, context.settings.evaluation.precision)
    fittest = population.best(apart_from=context.reference)
    if fittest is None:
        judged = population.totals.judged
        say(console, "No kernel was correct." if judged else "No kernel was judged yet.")
    else:
        shown = _rows(population, view, confirmed, champion, context.reference)
        print_table(console, _COLUMNS, shown)
        if any(member.kernel.id == context.reference for member, _, _ in shown):
            note(console, REFERENCE_WORDS)
    if champion is not None:
        found = population.member(champion.kernel).evaluation
        share = roofline_share(card, found.accuracy.precision_class, champion.time_ms)
        say(console, f"Best: {champion.kernel}, {best_words(champion, ending.baselines, share)}.")
        if words := coarser_words(found.accuracy):
            note(console, words)
    if confirmed and (champion is None or champion.speedup_low <= 1):
        say(console, f"No kernel is confirmed to be faster than eager{_eager_words(card)}.")
    if verbosity() is Verbosity.QUIET:
        return
    for line in _failed_starts(view):
        say(console, line, "yellow")
    say(console, count_words(population.totals))
    spent = Budget.of(context.settings).spent(population.totals, wall_seconds=archive.runs.wall_seconds(run.id))
    say(console, cost_words(spent, _gain(population, view, confirmed, champion)))
    say(console, f"Run {run.id} stopped: {ending.reason.value}.")
    say(console, f"Archive: {archive.path}. Next:")
    published = champion.kernel if champion else fittest.kernel.id if fittest else None
    commands = _next_commands(context, ending.reason, published)
    width = max((len(command) for command, _ in commands), default=0)
    for command, why in commands:
        console.print(Text(f"  {command:<{width}}  ").append(why, style="dim"), soft_wrap=True)


def coarser_words(accuracy: Accuracy) -> str:
    """How much less accurate than the reference a kernel is; "" for one that is hardly so."""
    times = accuracy.over_reference
    if times is None or times <= SLACK:
        return ""
    return (
        f"It is within the limit, and less accurate than the reference: an error of {accuracy.error:.1e} against "
        f"{accuracy.reference_error:.1e}."
    )


def best_words(champion: Confirmation, baselines: Sequence[Baseline], share: float | None = None) -> str:
    """``1.94× over eager (confirmed), 61 % of the roofline, 1.31× over the best of eager and compile (compile)``.

    Args:
        champion: the confirmed kernel.
        baselines: as they were measured.
        share: of the roofline that the kernel reaches; None where it is unknown.
    """
    words = f"{over_eager(as_times(champion.speedup), champion.speedup)} {CONFIRMED}"
    if share is not None:
        words += f", {percent(share)} of the roofline"
    if champion.speedup_low <= 1 <= champion.speedup_high:
        words += f", although its interval {interval_words(champion.speedup_low, champion.speedup_high)} includes 1"
    measured = {one.name: one.speedup for one in baselines if one.speedup is not None}
    if default := measured.pop(DEFAULT_FLAGS, None):
        words += f", {over_eager(as_times(champion.speedup / default), champion.speedup / default)} with default flags"
    names = [EAGER, *measured]
    if len(names) > 1:
        ratio = over_best(champion.speedup, baselines)
        over = f"{as_times(ratio)} {'over' if ratio >= 1 else 'of the speed of'} the best of"
        words += f", {over} {', '.join(names[:-1])} and {names[-1]} ({best(baselines).name})"
    failed = [f"{one.name} failed: {one.failure}" for one in baselines if one.speedup is None]
    return "; ".join([words, *failed])


def _eager_words(card: ProblemCard | None) -> str:
    """``, which takes 1.20 ms, 93 % of the roofline``: what little is left to gain."""
    if card is None or not card.eager_ms or not card.task_roofline_ms:
        return ""
    return (
        f", which takes {time_words(card.eager_ms)}, {percent(card.task_roofline_ms / card.eager_ms)} of the roofline"
    )


def cost_words(spent: Spent, gain: float | None) -> str:
    """``Cost: 204 evaluations, 12:30 of device time, …; per percent of the 120 % gained …: 6.25 s, $0.027``.

    Args:
        spent: what the run has spent.
        gain: percent by which the published kernel is faster than the best starting kernel; None if unknown.
    """
    parts = [counted(spent.evaluations, "evaluation"), f"{duration_words(spent.device_seconds)} of device time"]
    parts.append(f"{duration_words(spent.wall_seconds)} in all")
    if spent.tokens:
        parts.append(counted(spent.tokens, "token"))
        parts.append("dollars unknown" if spent.dollars is None else f"${spent.dollars:.2f}")
    words = f"Cost: {', '.join(parts)}"
    if gain is None or gain <= 0:
        return words
    each = [f"{spent.evaluations / gain:.3g} evaluations", f"{spent.device_seconds / gain:.3g} s of device time"]
    if spent.tokens and spent.dollars is not None:
        each.append(f"${spent.dollars / gain:.2g}")
    return f"{words}; per percent of the {gain:.3g} % gained over the best start: {', '.join(each)}"


def _gain(
    population: Population, view: RunView, confirmed: Mapping[str, Confirmation], champion: Confirmation | None
) -> float | None:
    """Percent by which the published kernel is faster than the best starting kernel, by confirmed numbers if there are
    any; None if nothing is published, or no starting kernel was correct."""
    fittest = population.best()
    # After contests without a champion, nothing is published.
    best = champion or (fittest.evaluation.timing if fittest and not confirmed else None)
    starts = [
        (confirmed.get(evaluation.kernel) or evaluation.timing).speedup or 0.0
        for _, evaluation in _starts(view)
        if evaluation.verdict is Verdict.CORRECT and population.is_valid(evaluation.kernel)
    ]
    if best is None or not best.speedup or not max(starts, default=0.0):
        return None
    return (best.speedup / max(starts) - 1) * 100


def _rows(
    population: Population,
    view: RunView,
    confirmed: Mapping[str, Confirmation],
    champion: Confirmation | None,
    reference: str,
) -> list[_Shown]:
    """The champion, the best children and the other starting kernels, by the lower ends of what is published.

    The reference is the last one, as `kbevolve archive best` has it.
    """
    title = champion.kernel if champion else None
    fittest = (member for member in population.ranked() if member.kernel.id != title)
    ranked = chain([population.member(title)] if title else [], fittest)
    created = ((member, view.first_birth(member.kernel.id)) for member in ranked)
    children = islice(
        (
            (one, birth)
            for one, birth in created
            if birth and (birth.operator is not Operator.SEED or one.kernel.id == title)
        ),
        SHOWN,
    )
    starts = [
        (population.member(birth.kernel), birth)
        for birth, evaluation in _starts(view)
        if birth.kernel
        and birth.kernel != title
        and evaluation.verdict is Verdict.CORRECT
        and population.is_valid(birth.kernel)
    ]
    shown = [(member, birth, confirmed.get(member.kernel.id)) for member, birth in (*children, *starts)]
    return sorted(shown, key=lambda one: (one[0].kernel.id != title, one[0].kernel.id == reference, -_lower_end(*one)))


def _lower_end(member: Member, birth: Birth, confirmation: Confirmation | None) -> float:
    return (confirmation or member.evaluation.timing).speedup_low or 0.0


def _failed_starts(view: RunView) -> Iterator[str]:
    """Starting kernels that failed: often the machine lacks something that `kbevolve doctor` shows."""
    for birth, evaluation in _starts(view):
        if evaluation.verdict is not Verdict.CORRECT:
            # The whole message can be a compiler's log.
            message = " ".join(evaluation.message.split())[:MESSAGE]
            yield f"{birth.note}: {verdict_words(evaluation.verdict)}: {message} …"
            yield f"  the whole message: kbevolve archive show {birth.kernel}; missing tools: kbevolve doctor"


def _starts(view: RunView) -> list[tuple[Birth, Evaluation]]:
    """The judged starting kernels, each once."""
    found = {birth.kernel: (birth, evaluation) for birth, evaluation in reversed(view.verdicts(0)) if evaluation}
    return list(reversed(found.values()))


def _speedup(member: Member, birth: Birth, confirmation: Confirmation | None) -> Text:
    published = confirmation or member.evaluation.timing
    style = "green" if (published.speedup_low or 0) > 1 else ""
    return Text(published_words(confirmation, member.evaluation), style=style)


def _next_commands(context: RunContext, reason: StopReason, best: str | None) -> list[tuple[str, str]]:
    """Commands that may follow, and what each is for."""
    commands = []
    if best is not None:
        commands += [
            (f"kbevolve export --kernel {best} -o best.py", "the best kernel as a ModelNew file, measured again"),
            (f"kbevolve archive lineage {best}", "its ancestors"),
            ("kbevolve plot -o best.png", "best so far, as a figure"),
        ]
    if reason is StopReason.GENERATIONS:
        commands.append((f"kbevolve resume --generations {context.settings.search.generations * 2}", "continue"))
    if reason is StopReason.INTERRUPTED:
        commands.append(("kbevolve resume", "continue"))
    if reason is StopReason.STAGNATION:
        commands.append(("kbevolve resume --set search.patience=0", "continue, even without progress"))
    if reason in LIMITS:
        commands.append((f"kbevolve resume --set budget.{LIMITS[reason]}=null", "continue without this limit"))
    where = archive_words(Path(context.archive.path))
    return [(f"{command}{where}", why) for command, why in commands]
