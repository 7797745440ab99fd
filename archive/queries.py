"""What is read from an archive, as functions of an open `Connection`. `Archive` is their public face.

What belongs to a run is found through indices, so it costs the same in an archive of one run and of a thousand. What a
search asks while it goes on is in `archive.run_view`.
"""

import sqlite3
from dataclasses import dataclass

from kbevolve.archive import rows
from kbevolve.archive.champion import champion_of
from kbevolve.archive.connection import Connection
from kbevolve.archive.prefixes import AFTER, ambiguous, by_prefix, only
from kbevolve.archive.records import (
    Birth,
    Confirmation,
    Evaluation,
    Idea,
    Kernel,
    Placement,
    ProblemCard,
    Run,
    StopReason,
)
from kbevolve.archive.run_queries import precision_of, run
from kbevolve.configs.errors import ArchiveError, nearest
from kbevolve.configs.problem import Problem

#: First evaluation of each kernel of a run, under the run's own conditions. The search decided on the first; a later
#: one was repeated for an export, or is the failure of a kernel that did not pass again.
_OF_RUN = """
from evaluations where number in (
    select min(number) from evaluations
    where kernel in (select kernel from births where run = ? and kernel is not null)
      and problem = ? and device = ? and precision = ?
    group by kernel)
"""

#: Kernels that passed at first and not when they were judged again under the same conditions, and those that had their
#: verdict from one of them.
_FAILED = """
with failed as (
    select distinct later.kernel from evaluations as later
    join evaluations as first on first.number = (
        select min(number) from evaluations
        where kernel = later.kernel and problem = later.problem and device = later.device
            and precision = later.precision)
    where later.verdict <> 'CORRECT' and first.verdict = 'CORRECT'
        and later.problem = ? and later.device = ? and later.precision = ?)
select kernel from failed union select kernel from evaluations where identical_to in (select kernel from failed)
"""
#: … those of a run.
_FAILED_OF_RUN = (
    f"select kernel from ({_FAILED}) where kernel in (select kernel from births where run = ? and kernel is not null)"
)

#: Columns of a birth, and the tables of its texts.
_BIRTH = ", ".join(f"births.{name}" for name in Birth.__dataclass_fields__ if name not in ("prompt", "reply"))
_TEXTS = (
    "left join texts as prompts on prompts.id = births.prompt left join texts as replies on replies.id = births.reply"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """A run and what came of it so far."""

    run: Run
    #: Children asked for, starting kernels included, whatever became of them.
    births: int
    #: Kernels with a verdict, and those of them that are CORRECT.
    evaluated: int
    correct: int
    #: The newest generation that has a birth.
    generations: int
    #: Evaluation of the fittest kernel (highest lower end of the speedup's interval) of those that did not fail later,
    #: None while nothing is correct.
    best: Evaluation | None
    #: The champion's confirmation, whose speedup is published; None while nobody was confirmed.
    champion: Confirmation | None
    #: Why it stopped, None while it runs, or when its process was killed.
    stopped: StopReason | None

    @property
    def best_kernel(self) -> str | None:
        """Id of the champion, or else of the fittest kernel."""
        published = self.champion or self.best
        return published.kernel if published else None

    @property
    def best_speedup(self) -> float | None:
        """Its speedup over eager: the confirmed one where there is a champion."""
        published = self.champion or (self.best and self.best.timing)
        return published.speedup if published else None


def _conditions(run: Run) -> tuple[str, str, str, str]:
    """Parameters of `_OF_RUN`."""
    return run.id, run.problem, run.device, precision_of(run)


def summary(connection: Connection, run: Run) -> RunSummary:
    """What came of a run so far."""
    births, generations = connection.rows("select count(*), max(generation) from births where run = ?", run.id)[0]
    stop = connection.row("select reason, births from stops where run = ? order by number desc limit 1", run.id)
    # Counted by SQLite: a list of runs must not build a record for each of their kernels.
    evaluated, correct = connection.rows(f"select count(*), total(verdict = 'CORRECT') {_OF_RUN}", *_conditions(run))[0]
    best_row = connection.row(
        f"select * {_OF_RUN} and verdict = 'CORRECT' and kernel not in ({_FAILED_OF_RUN}) "
        "order by speedup_low desc, identical_to is not null, kernel limit 1",
        *_conditions(run),
        *_conditions(run)[1:],
        run.id,
    )
    return RunSummary(
        run=run,
        births=births,
        evaluated=evaluated,
        correct=int(correct),
        generations=generations or 0,
        best=rows.evaluation_from(best_row) if best_row else None,
        champion=champion(connection, run),
        # A stop that has births after it is history: the run was resumed.
        stopped=rows.member(StopReason, stop["reason"]) if stop and stop["births"] == births else None,
    )


def problem(connection: Connection, problem_id: str) -> Problem:
    """A problem by its id, with the text that was run."""
    row = connection.row("select * from problems where id = ?", problem_id)
    if row is None:
        raise ArchiveError(
            f"no problem with id {problem_id!r} in {connection.path}; `kbevolve archive ls` lists its runs"
        )
    return rows.problem_from(row)


def births(connection: Connection, run_id: str, *, texts: bool) -> list[Birth]:
    """The births of a run, in order of generation, island and slot; without `texts`, prompt and reply are ""."""
    return _births(connection, "births.run = ? order by generation, island, slot", run_id, texts=texts)


def births_of(connection: Connection, kernel_id: str) -> list[Birth]:
    """Every birth of a kernel, in every run, the first first."""
    return _births(connection, "births.kernel = ? order by number", kernel_id, texts=True)


def _births(connection: Connection, where: str, key: str, *, texts: bool) -> list[Birth]:
    prompt, reply, joins = ("prompts.text", "replies.text", _TEXTS) if texts else ("null", "null", "")
    found = connection.rows(
        f"select {_BIRTH}, {prompt} as prompt, {reply} as reply from births {joins} where {where}", key
    )
    return [rows.birth_from(row) for row in found]


def kernel(connection: Connection, which: str) -> Kernel:
    """A kernel by id or unique prefix."""
    found = by_prefix(connection, "kernels", which)
    if not found:
        start = which[:2]  # a slip of the pen further on; hashes are "near" in no other sense
        known = connection.rows("select id from kernels where id between ? and ? limit 100", start, start + AFTER)
        close = f" {nearest(which, [row['id'] for row in known])}" if known else ""
        raise ArchiveError(
            f"no kernel {which!r} in {connection.path}.{close} `kbevolve archive ls latest` lists those of the last run"
        )
    return rows.kernel_from(connection.rows("select * from kernels where id = ?", only(found, "kernels", which))[0])


def kernels(connection: Connection, run_id: str) -> dict[str, Kernel]:
    """Every kernel that was born in a run, by id."""
    found = connection.rows(
        "select * from kernels where id in (select kernel from births where run = ? and kernel is not null)", run_id
    )
    return {row["id"]: rows.kernel_from(row) for row in found}


def ideas(connection: Connection, run_id: str) -> dict[str, Idea]:
    """Every idea that a birth of a run carries out, by id."""
    found = connection.rows(
        "select * from ideas where id in (select idea from births where run = ? and idea is not null)", run_id
    )
    return {row["id"]: rows.idea_from(row) for row in found}


def placements(connection: Connection, run_id: str) -> list[Placement]:
    """The placements of a run, in the order they were made."""
    found = connection.rows("select * from placements where run = ? order by number", run_id)
    return [rows.placement_from(row) for row in found]


def evaluation(
    connection: Connection, kernel_id: str, problem_id: str, device: str, precision: str, *, blocks: bool
) -> Evaluation | None:
    """The first evaluation of a kernel under these conditions, None when there is none."""
    row = connection.row(
        "select * from evaluations where kernel = ? and problem = ? and device = ? and precision = ? "
        "order by number limit 1",
        kernel_id,
        problem_id,
        device,
        precision,
    )
    if row is None:
        return None
    return rows.evaluation_from(row, _blocks(connection, row["number"]) if blocks else ())


def evaluations(connection: Connection, run: Run) -> dict[str, Evaluation]:
    """The first evaluation of each kernel of a run on its problem, device and precision; without blocks."""
    found = connection.rows(f"select * {_OF_RUN} order by number", *_conditions(run))
    return {row["kernel"]: rows.evaluation_from(row) for row in found}


def evaluations_of(connection: Connection, kernel_id: str) -> list[Evaluation]:
    """Every evaluation of a kernel, on every problem and device, the first first; with blocks."""
    found = connection.rows("select * from evaluations where kernel = ? order by number", kernel_id)
    return [rows.evaluation_from(row, _blocks(connection, row["number"])) for row in found]


def failed(connection: Connection, run: Run) -> set[str]:
    """Kernels of a run that passed at first, but not when they were judged again under its conditions."""
    return {row["kernel"] for row in connection.rows(_FAILED_OF_RUN, *_conditions(run)[1:], run.id)}


def confirmations(connection: Connection, run_id: str) -> list[Confirmation]:
    """The confirmations of a run, in the order they were made; without blocks."""
    found = connection.rows("select * from confirmations where run = ? order by number", run_id)
    return [rows.confirmation_from(row) for row in found]


def confirmations_of(connection: Connection, kernel_id: str) -> list[Confirmation]:
    """Every confirmation of a kernel, in every run, the first first; with blocks."""
    found = connection.rows("select * from confirmations where kernel = ? order by number", kernel_id)
    return [
        rows.confirmation_from(
            row,
            connection.rows(
                "select * from confirmation_blocks where confirmation = ? order by position", row["number"]
            ),
        )
        for row in found
    ]


def champion(connection: Connection, run: Run) -> Confirmation | None:
    """The confirmation that a run publishes, None while nobody was confirmed."""
    made = confirmations(connection, run.id)
    return champion_of(made, failed(connection, run)) if made else None


def best(connection: Connection, problem_id: str, device: str, precision: str) -> Evaluation | None:
    """The best CORRECT kernel of a problem on a device, by what it has at least shown.

    Where a run has a champion, it stands for all kernels of that run, with its confirmed speedup; the others count by
    their first evaluation. A kernel that failed later does not count at all.
    """
    conditions = (problem_id, device, precision)
    asked = connection.rows("select * from runs where problem = ? and device = ? order by number", problem_id, device)
    alike = [run for run in map(rows.run_from, asked) if precision_of(run) == precision]
    champions = {run.id: one for run in alike if (one := champion(connection, run)) is not None}
    runs_with_champion = ", ".join("?" * len(champions))
    fittest = connection.row(
        "select * from evaluations where number in ("
        "    select min(number) from evaluations where problem = ? and device = ? and precision = ? group by kernel)"
        f" and verdict = 'CORRECT' and kernel not in ({_FAILED}) and kernel not in ("
        f"    select kernel from births where kernel is not null and run in ({runs_with_champion}))"
        " order by speedup_low desc, identical_to is not null, kernel limit 1",
        *conditions,
        *conditions,
        *champions,
    )
    leading = max(champions.values(), key=lambda one: one.speedup_low, default=None)
    if leading is not None and (fittest is None or leading.speedup_low > (fittest["speedup_low"] or 0.0)):
        return evaluation(connection, leading.kernel, *conditions, blocks=False)
    return rows.evaluation_from(fittest) if fittest else None


def card(connection: Connection, problem_id: str, device: str, precision: str) -> ProblemCard | None:
    """The newest card of a problem under these conditions."""
    row = connection.row(
        "select * from cards where problem = ? and device = ? and precision = ? order by number desc limit 1",
        problem_id,
        device,
        precision,
    )
    return rows.card_from(row) if row else None


def devices(connection: Connection, problem_id: str) -> list[str]:
    """Fingerprints of the devices on which a problem has a CORRECT kernel."""
    found = connection.rows(
        "select distinct device from evaluations where problem = ? and verdict = 'CORRECT' order by device", problem_id
    )
    return [row["device"] for row in found]


def tokens(connection: Connection, run_id: str) -> tuple[int, int]:
    """Prompt and completion tokens of a run."""
    row = connection.rows(
        "select coalesce(sum(prompt_tokens), 0), coalesce(sum(completion_tokens), 0) from births where run = ?", run_id
    )[0]
    return int(row[0]), int(row[1])


def _blocks(connection: Connection, number: int) -> list[sqlite3.Row]:
    return connection.rows("select * from blocks where evaluation = ? order by position", number)


def find(connection: Connection, which: str) -> Kernel | Run:
    """A kernel or a run, by id or by what only one of them all starts with; "latest" is a run."""
    kernels_found, runs_found = by_prefix(connection, "kernels", which), by_prefix(connection, "runs", which)
    if which == "latest" or (runs_found and (not kernels_found or runs_found == [which])):
        return run(connection, which)
    if kernels_found and (not runs_found or kernels_found == [which]):
        return kernel(connection, which)
    if not kernels_found:
        raise ArchiveError(
            f"no kernel and no run {which!r} in {connection.path}; `kbevolve archive ls` lists the runs, "
            "`kbevolve archive ls latest` the kernels of the last"
        )
    raise ArchiveError(ambiguous(kernels_found + runs_found, "kernels and runs", which))
