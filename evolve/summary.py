"""What the user reads when a run is over: the best kernels, where they are, and what to type next."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path

from rich.console import Console
from rich.text import Text

from kbevolve.archive.ledger import Ledger
from kbevolve.archive.numbers import as_times
from kbevolve.archive.records import Birth, Confirmation, Evaluation, Operator, Run, StopReason, Verdict
from kbevolve.archive.store import Archive
from kbevolve.evaluators.timing.baselines import EAGER, Baseline, best, over_best
from kbevolve.evolve.options import DEFAULT_ARCHIVE
from kbevolve.evolve.population import Population
from kbevolve.evolve.tables import Column, print_table
from kbevolve.evolve.words import CONFIRMED, count_words, published_words, time_words, verdict_words
from kbevolve.islands.island import Member

#: Kernels in the closing table, beside the starting kernels.
SHOWN = 5
#: Characters of a failed starting kernel's message.
MESSAGE = 160

_COLUMNS = (
    Column(name="kernel"),
    Column(name="over eager", right=True),
    Column(name="time", right=True),
    Column(name="eager", right=True, least_width=96),
    Column(name="made by"),
    Column(name="what", flexible=True),
)


def print_summary(
    console: Console,
    *,
    run: Run,
    population: Population,
    reason: StopReason,
    archive: Archive,
    generations: int,
    baselines: Sequence[Baseline] = (),
) -> None:
    """Print the closing table, what is published, the reason of the stop and the next commands."""
    champion, ledger = archive.champion(run.id), archive.ledger(run)
    if population.best() is None:
        console.print(Text("No kernel was correct."))
    else:
        confirmed = {one.kernel: one for one in archive.confirmations(run.id)}
        print_table(console, _COLUMNS, _rows(population, ledger, confirmed, champion))
    if champion is not None:
        console.print(Text(f"Best: {champion.kernel}, {best_words(champion, baselines)}."), soft_wrap=True)
    for line in _failed_starts(ledger):
        console.print(Text(line, style="yellow"), soft_wrap=True)
    console.print(Text(count_words(population)))
    console.print(Text(f"Run {run.id} stopped: {reason.value}."), soft_wrap=True)
    fittest = population.best()
    shown = champion.kernel if champion else fittest.kernel.id if fittest else None
    _print_next(console, run=run, best=shown, archive=Path(archive.path), generations=generations, reason=reason)


def best_words(champion: Confirmation, baselines: Sequence[Baseline]) -> str:
    """``1.94× over eager (confirmed), 1.31× over the best of eager, compile and graph (compile)``."""
    words = f"{as_times(champion.speedup)} over eager {CONFIRMED}"
    names = [EAGER, *(one.name for one in baselines if one.speedup is not None)]
    if len(names) > 1:
        over = as_times(over_best(champion.speedup, baselines))
        words += f", {over} over the best of {', '.join(names[:-1])} and {names[-1]} ({best(baselines).name})"
    failed = [f"{one.name} failed: {one.failure}" for one in baselines if one.speedup is None]
    return "; ".join([words, *failed])


def _rows(
    population: Population, ledger: Ledger, confirmed: Mapping[str, Confirmation], champion: Confirmation | None
) -> list[tuple[str | Text, ...]]:
    """The best that were bred, the champion first, then the starting kernels."""
    title = champion.kernel if champion else None
    fittest = (member for member in population.standing() if member.kernel.id != title)
    ranked = chain([population.member(title)] if title else [], fittest)
    born = ((member, ledger.first_birth(member.kernel.id)) for member in ranked)
    bred = islice(((one, birth) for one, birth in born if birth and birth.operator is not Operator.SEED), SHOWN)
    starts = [
        (population.member(birth.kernel), birth)
        for birth, evaluation in _starts(ledger)
        if birth.kernel and evaluation.verdict is Verdict.CORRECT and population.stands(birth.kernel)
    ]
    starts.sort(key=lambda start: (start[0].kernel.id != title, -start[0].fitness))
    return [_row(member, birth, confirmed.get(member.kernel.id)) for member, birth in (*bred, *starts)]


def _failed_starts(ledger: Ledger) -> Iterator[str]:
    """Starting kernels that did not pass: often the machine lacks something that `kbevolve doctor` names."""
    for birth, evaluation in _starts(ledger):
        if evaluation.verdict is not Verdict.CORRECT:
            # The whole message can be a compiler's log.
            message = " ".join(evaluation.message.split())[:MESSAGE]
            yield f"{birth.note}: {verdict_words(evaluation.verdict)}: {message} …"
            yield f"  the whole message: kbevolve archive show {birth.kernel}; what is missing here: kbevolve doctor"


def _starts(ledger: Ledger) -> list[tuple[Birth, Evaluation]]:
    """The starting kernels that were judged, each once however many islands have it."""
    found = {birth.kernel: (birth, evaluation) for birth, evaluation in reversed(ledger.verdicts(0)) if evaluation}
    return list(reversed(found.values()))


def _row(member: Member, birth: Birth, confirmation: Confirmation | None) -> tuple[str | Text, ...]:
    published = confirmation or member.evaluation
    style = "green" if (published.speedup_low or 0) > 1 else ""
    return (
        member.kernel.id,
        Text(published_words(confirmation, member.evaluation), style=style),
        time_words(published.time_ms),
        time_words(published.reference_ms),
        birth.operator.value,
        birth.note,
    )


def _print_next(
    console: Console, *, run: Run, best: str | None, archive: Path, generations: int, reason: StopReason
) -> None:
    where = "" if archive == DEFAULT_ARCHIVE else f" --archive {archive}"
    commands = []
    if best is not None:
        commands += [
            (f"kbevolve export --problem {run.problem_name} -o best.py{where}", "the best kernel as a ModelNew file"),
            (f"kbevolve archive lineage {best}{where}", "how it came to be"),
            (f"kbevolve plot -o best.png{where}", "best so far, drawn"),
        ]
    if reason in (StopReason.GENERATIONS, StopReason.INTERRUPTED):
        more = f" --generations {generations * 2}" if reason is StopReason.GENERATIONS else ""
        commands.append((f"kbevolve resume{more}{where}", "go on"))
    console.print(Text(f"Archive: {archive}. Next:"))
    width = max((len(command) for command, _ in commands), default=0)
    for command, why in commands:
        console.print(Text(f"  {command:<{width}}  ").append(why, style="dim"), soft_wrap=True)
