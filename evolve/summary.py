"""What the user reads when a run is over: the best kernels, where they are, and what to type next."""

from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kbevolve.archive.records import Birth, Operator, Run, StopReason
from kbevolve.evolve.options import DEFAULT_ARCHIVE
from kbevolve.evolve.population import Population
from kbevolve.evolve.words import count_words, speedup_words, time_words
from kbevolve.islands.island import Member

#: Kernels in the closing table, beside the starting kernels.
SHOWN = 5


def print_summary(
    console: Console, *, run: Run, population: Population, reason: StopReason, archive: Path, generations: int
) -> None:
    """Print the closing table, the reason of the stop and the next commands."""
    births = _first_births(population)
    if population.best() is None:
        console.print(f"No kernel was correct ({count_words(population)}).", highlight=False)
    else:
        console.print(_table(population, births))
    console.print(Text(count_words(population)))
    console.print(Text(f"Run {run.id} stopped: {reason.value}."))
    _print_next(console, run=run, population=population, archive=archive, generations=generations, reason=reason)


def _table(population: Population, births: dict[str, Birth]) -> Table:
    correct = sorted(population.history(), key=lambda member: -member.fitness)
    bred = [member for member in correct if births[member.kernel.id].operator is not Operator.SEED]
    starts = [member for member in correct if births[member.kernel.id].operator is Operator.SEED]
    eager = correct[0].evaluation.reference_ms
    table = Table(
        title=f"best kernels (eager: {time_words(eager)})",
        title_justify="left",
        title_style="bold",
        box=None,
        header_style="dim",
        pad_edge=False,
    )
    table.add_column("kernel", no_wrap=True)
    table.add_column("speedup over eager", no_wrap=True)
    table.add_column("time", justify="right", no_wrap=True)
    table.add_column("backend", no_wrap=True)
    table.add_column("made by", overflow="ellipsis", no_wrap=True)
    for member in bred[:SHOWN]:
        _add_row(table, member, births[member.kernel.id])
    if bred and starts:
        table.add_row("", "", "", "", Text("starting kernels", style="dim"))
    for member in starts:
        _add_row(table, member, births[member.kernel.id])
    return table


def _add_row(table: Table, member: Member, birth: Birth) -> None:
    evaluation = member.evaluation
    made = birth.note if birth.operator is Operator.SEED else f"{birth.operator.value}: {birth.note}"
    table.add_row(
        member.kernel.id,
        Text(speedup_words(evaluation), style="green" if (evaluation.speedup_low or 0) > 1 else ""),
        time_words(evaluation.time_ms),
        member.kernel.backend.value,
        Text(made),
    )


def _print_next(
    console: Console, *, run: Run, population: Population, archive: Path, generations: int, reason: StopReason
) -> None:
    where = "" if archive == DEFAULT_ARCHIVE else f" --archive {archive}"
    best = population.best()
    commands = []
    if best is not None:
        commands += [
            (f"kbevolve export --problem {run.problem_name} -o best.py{where}", "the best kernel as a ModelNew file"),
            (f"kbevolve archive lineage {best.kernel.id}{where}", "how it came to be"),
            (f"kbevolve plot -o best.png{where}", "best so far, drawn"),
        ]
    if reason in (StopReason.GENERATIONS, StopReason.INTERRUPTED):
        more = f" --generations {generations * 2}" if reason is StopReason.GENERATIONS else ""
        commands.append((f"kbevolve resume{more}{where}", "go on"))
    console.print(Text(f"Archive: {archive}. Next:"))
    width = max((len(command) for command, _ in commands), default=0)
    for command, why in commands:
        console.print(Text(f"  {command:<{width}}  ").append(why, style="dim"), soft_wrap=True)


def _first_births(population: Population) -> dict[str, Birth]:
    births: dict[str, Birth] = {}
    for birth in population.births:
        if birth.kernel is not None:
            births.setdefault(birth.kernel, birth)
    return births
