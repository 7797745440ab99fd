"""The runs of an archive, and everything that belongs to one run.

What belongs to a run is found through indices: it costs the same in an archive of one run and of a thousand. What a
search asks while it goes on is in `archive.run_view`.
"""

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path

from kbevolve.archive import rows
from kbevolve.archive.champion import champion_of
from kbevolve.archive.connection import Connection
from kbevolve.archive.prefixes import by_prefix, only, starting_with
from kbevolve.archive.records import Birth, Confirmation, Evaluation, Idea, Kernel, Placement, Run, StopReason
from kbevolve.configs.errors import ArchiveError, nearest
from kbevolve.configs.problem import Problem
from kbevolve.configs.reference import as_model_new

#: Kernels that passed at first and failed when they were judged again under the same conditions (problem ?1, device ?2,
#: precision ?3), and those that had their verdict from one of them; of evaluations with numbers above ?4.
FAILED = """
with failed as (
    select distinct later.kernel from evaluations as later
    where later.problem = ?1 and later.device = ?2 and later.precision = ?3 and later.number > ?4
        and later.verdict <> 'CORRECT'
        and (select verdict from evaluations where kernel = later.kernel and problem = ?1 and device = ?2
             and precision = ?3 order by number limit 1) = 'CORRECT')
select kernel from failed
union select kernel from evaluations where identical_to in (select kernel from failed)
union select kernel from evaluations as follower where identical_to > '' and +number > ?4 and exists (
    select 1 from evaluations where kernel = follower.identical_to and problem = ?1 and device = ?2 and precision = ?3
    and verdict <> 'CORRECT')
"""
_KERNELS_OF_RUN = "select kernel from births where run = ?5 and kernel is not null"
_FAILED_OF_RUN = f"select kernel from ({FAILED}) where kernel in ({_KERNELS_OF_RUN})"
#: First evaluation of each kernel of a run, under the run's own conditions. The search decided on the first; a later
#: one was repeated for an export, or is the failure of a kernel that did not pass again.
_EVALUATIONS_OF_RUN = f"""
from evaluations where number in (
    select min(number) from evaluations
    where kernel in ({_KERNELS_OF_RUN}) and problem = ?1 and device = ?2 and precision = ?3 group by kernel)
"""
#: Kernels of a run with a verdict, those that are correct, and the number of the best one's evaluation. ?6 is the
#: reference.
_RESULTS_OF_RUN = f"""
with evaluated as (select number, kernel, verdict, speedup_low, identical_to {_EVALUATIONS_OF_RUN})
select count(*), total(verdict = 'CORRECT'), (
    select number from evaluated where verdict = 'CORRECT' and kernel not in ({_FAILED_OF_RUN})
    order by kernel = ?6, speedup_low desc, identical_to is not null, kernel limit 1)
from evaluated
"""
#: The last moment at which a run wrote something in a stretch of time. Evaluations are found by the births of that
#: stretch.
_LAST_FACT = """
select max(at) as at from (
    select at from births where run = ?1
    union all select at from generation_ends where run = ?1
    union all select at from confirmations where run = ?1
    union all select at from stops where run = ?1
    union all select evaluations.at from births join evaluations on evaluations.kernel = births.kernel
        where births.run = ?1 and births.at >= ?2)
where at >= ?2 and at < ?3
"""
#: Later than every moment, as text.
_NEVER = "~"
_BIRTH = ", ".join(f"births.{name}" for name in rows.columns(Birth) if name not in ("prompt", "reply"))
#: The columns of a birth, with "" for its prompt and reply.
BIRTH = f"{_BIRTH}, '' as prompt, '' as reply"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """A run and its results so far."""

    run: Run
    #: Children asked for, starting kernels included, with and without a kernel.
    births: int
    #: Kernels with a verdict, and those of them that are CORRECT.
    evaluated: int
    correct: int
    #: The newest generation that has a birth.
    generations: int
    #: Evaluation of the fittest kernel (highest lower end of the speedup's interval) of those that did not fail later;
    #: the reference itself only where there is no other. None while nothing is correct.
    best: Evaluation | None
    #: The champion's confirmation, whose speedup is published; None while no kernel was confirmed.
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


class Runs:
    """The runs of an open archive. Threads may share it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def get(self, which: str = "latest") -> Run:
        """A run by its id, the unique start of it, or "latest".

        Raises:
            ArchiveError: there is none, or several start so; the message names the nearest.
        """
        path = self._connection.path
        if which == "latest":
            newest = rows.read_first(self._connection, Run, "select * from runs order by number desc limit 1")
            if newest is None:
                raise ArchiveError(f"{path} has no run yet; start one: kbevolve run --problem L1/matmul")
            return newest
        found = by_prefix(self._connection, "runs", which)
        if not found:
            known = [row["id"] for row in self._connection.rows("select id from runs")]
            raise ArchiveError(f"no run {which!r} in {path}. {nearest(which, known)}")
        return self._read(Run, "select * from runs where id = ?", only(found, "runs", which))[0]

    def ids(self, prefix: str = "") -> list[str]:
        """The ids of the newest runs whose id begins so."""
        return starting_with(self._connection, "runs", prefix)

    def latest_of(self, problem_name: str) -> Run:
        """The newest run of a problem, by the name it was asked for, or its path.

        Raises:
            ArchiveError: there is none; the message names the nearest.
        """
        file = Path(problem_name).expanduser()
        found = self._read(
            Run,
            "select runs.* from runs join problems on problems.id = runs.problem "
            "where runs.problem_name in (?, ?) or problems.path in (?, ?) order by runs.number desc limit 1",
            problem_name,
            file.stem if file.suffix == ".py" else problem_name,
            str(file),
            str(file.absolute()),
        )
        if not found:
            known = {row["problem_name"] for row in self._connection.rows("select distinct problem_name from runs")}
            raise ArchiveError(f"no run of {problem_name} in {self._connection.path}. {nearest(problem_name, known)}")
        return found[0]

    def like(self, run: Run) -> list[Run]:
        """The runs on the same problem text and the same device, `run` among them, the oldest first."""
        sql = "select * from runs where problem = ? and device = ? order by number"
        return self._read(Run, sql, run.problem, run.device)

    def on_other_problems(self, run: Run, *, limit: int) -> list[Run]:
        """Earlier runs on other problems on the same device, the newest first."""
        sql = (
            "select * from runs where problem <> ? and device = ?"
            " and number < (select number from runs where id = ?) order by number desc limit ?"
        )
        return self._read(Run, sql, run.problem, run.device, run.id, limit)

    def summaries(self) -> list[RunSummary]:
        """Every run with its counts and its best kernel, newest first."""
        return [self.summary(run) for run in self._read(Run, "select * from runs order by number desc")]

    def summary(self, run: Run) -> RunSummary:
        """Counts and best kernel of one run."""
        query, conditions = self._connection.rows, self._conditions(run)
        births, generations = query("select count(*), max(generation) from births where run = ?", run.id)[0]
        stop = self._connection.row(
            "select reason, births from stops where run = ? order by number desc limit 1", run.id
        )
        # By SQLite: a list of runs must not build a record for each of their kernels.
        evaluated, correct, best = query(_RESULTS_OF_RUN, *conditions, self.reference(run))[0]
        return RunSummary(
            run=run,
            births=births,
            evaluated=evaluated,
            correct=int(correct),
            generations=generations or 0,
            best=rows.read_first(self._connection, Evaluation, "select * from evaluations where number = ?", best),
            champion=self.champion(run.id),
            # A stop that has births after it is history: the run was resumed.
            stopped=rows.member(StopReason, stop["reason"]) if stop and stop["births"] == births else None,
        )

    def births(self, run_id: str, *, texts: bool = True) -> list[Birth]:
        """The births of a run in order of generation, island and slot.

        Without `texts`, prompts and replies are left out ("") and reading stays cheap however long they are.
        """
        where = "births.run = ? order by generation, island, slot"
        if texts:
            return births_with_texts(self._connection, where, run_id)
        return self._read(Birth, f"select {BIRTH} from births where {where}", run_id)

    def kernels(self, run_id: str) -> dict[str, Kernel]:
        """The kernels of a run, by id."""
        sql = "select * from kernels where id in (select kernel from births where run = ?)"
        return {kernel.id: kernel for kernel in self._read(Kernel, sql, run_id)}

    def ideas(self, run_id: str) -> dict[str, Idea]:
        """The ideas that the births of a run carry out, by id."""
        sql = "select * from ideas where id in (select idea from births where run = ?)"
        return {idea.id: idea for idea in self._read(Idea, sql, run_id)}

    def placements(self, run_id: str) -> list[Placement]:
        """The placements of a run, in the order they were made."""
        return self._read(Placement, "select * from placements where run = ? order by number", run_id)

    def evaluations(self, run_id: str) -> dict[str, Evaluation]:
        """Kernel id to its first evaluation on the run's problem, device and precision, without blocks.

        Evaluations by an earlier run count, too: such kernels are not measured twice.
        """
        sql = f"select * {_EVALUATIONS_OF_RUN} order by number"
        return {found.kernel: found for found in self._read(Evaluation, sql, *self._conditions(self.get(run_id)))}

    def failed(self, run_id: str) -> set[str]:
        """Kernels of a run that passed at first, but not when they were judged again under its conditions."""
        return {row["kernel"] for row in self._connection.rows(_FAILED_OF_RUN, *self._conditions(self.get(run_id)))}

    def confirmations(self, run_id: str) -> list[Confirmation]:
        """The confirmations of a run, in the order they were made; without blocks."""
        return self._read(Confirmation, "select * from confirmations where run = ? order by number", run_id)

    def champion(self, run_id: str) -> Confirmation | None:
        """The confirmation that a run publishes (`archive.champion`); None while no kernel was confirmed."""
        made = self.confirmations(run_id)
        return champion_of(made, self.failed(run_id)) if made else None

    def reference(self, run: Run) -> str:
        """Id of the kernel that is the run's reference itself, with which all others are compared."""
        return reference_kernel(self._connection, run.problem, run.device)

    def tokens(self, run_id: str) -> tuple[int, int]:
        """Prompt and completion tokens that a run has used."""
        sums = "select total(prompt_tokens), total(completion_tokens) from births where run = ?"
        prompt, completion = self._connection.rows(sums, run_id)[0]
        return int(prompt), int(completion)

    def tokens_by_model(self, run_id: str) -> dict[str, tuple[int, int]]:
        """Prompt and completion tokens of each model that was asked, also of one that reported none."""
        sums = (
            "select model, sum(prompt_tokens), sum(completion_tokens) from births"
            " where run = ? and (model <> '' or prompt_tokens or completion_tokens) group by model"
        )
        return {str(model): (sent, received) for model, sent, received in self._connection.rows(sums, run_id)}

    def device_use(self, run: Run, phases: Sequence[str]) -> tuple[int, float]:
        """How many kernels were judged for a run, and for how many seconds their `phases` held a device."""
        started = datetime.fromisoformat(run.created).timestamp() if run.created else 0.0
        where = f"{_EVALUATIONS_OF_RUN} and identical_to is null and (started_at <= 0 or started_at >= ?6)"
        each = " + ".join(f"total(json_extract(phases, '$.{name}'))" for name in phases)
        count, seconds = self._connection.rows(f"select count(*), {each} {where}", *self._conditions(run), started)[0]
        return int(count), float(seconds)

    def transfer(self, run_id: str) -> str | None:
        """What a run was given of other problems (`Archive.add_transfer`); None when nothing was recorded."""
        row = self._connection.row("select knowledge from transfers where run = ?", run_id)
        return None if row is None else str(row["knowledge"])

    def wall_seconds(self, run_id: str) -> float:
        """Seconds of all sessions of a run together; 0 for one that was over before sessions were recorded.

        A session that was killed has no end: it lasted up to the last fact that the run wrote before the next session.
        Finding that reads the births of the run.
        """
        sessions = self._connection.rows(
            "select started_at, max(ended_at) as ended_at from sessions where run = ?"
            " group by started_at order by started_at",
            run_id,
        )
        starts = [str(row["started_at"]) for row in sessions]
        total = 0.0
        for row, (start, following) in zip(sessions, pairwise([*starts, _NEVER]), strict=True):
            end = row["ended_at"] or self._connection.rows(_LAST_FACT, run_id, start, following)[0]["at"] or start
            seconds = (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()
            total += max(seconds, 0.0)  # a clock may be set back
        return total

    def newest_fact(self, run_id: str) -> str | None:
        """The last moment at which a run wrote something; None before the first."""
        found = self._connection.rows(_LAST_FACT, run_id, "", _NEVER)[0]["at"]
        return None if found is None else str(found)

    def _read(self, kind: type[rows.Record], sql: str, *parameters: object) -> list[rows.Record]:
        return rows.read(self._connection, kind, sql, *parameters)

    def _conditions(self, run: Run) -> tuple[str, str, str, int, str]:
        """The parameters of `FAILED` and of the queries made with it."""
        return run.problem, run.device, precision_of(run), 0, run.id


def precision_of(run: Run) -> str:
    """The precision that a run asks for, from its settings."""
    return _setting(run, "evaluation", "precision", default="fp32")


def strategy_of(run: Run) -> str:
    """The strategy of a run, from its settings."""
    return _setting(run, "search", "strategy", default="evolve")


def _setting(run: Run, section: str, name: str, *, default: str) -> str:
    return str(json.loads(run.settings).get(section, {}).get(name, default))


def reference_kernel(connection: Connection, problem_id: str, device: str) -> str:
    """Id of the kernel that is a problem's reference itself on a type of device; "" for an unknown problem."""
    found = rows.read_first(connection, Problem, "select * from problems where id = ?", problem_id)
    return Kernel.from_source(as_model_new(found.source_for(device.partition("/")[0]))).id if found else ""


def births_with_texts(connection: Connection, where: str, *parameters: object) -> list[Birth]:
    """Births by a condition and an order, with their prompts and replies."""
    sql = (
        f"select {_BIRTH}, coalesce(prompts.text, '') as prompt, coalesce(replies.text, '') as reply from births"
        " left join texts as prompts on prompts.id = births.prompt"
        f" left join texts as replies on replies.id = births.reply where {where}"
    )
    return rows.read(connection, Birth, sql, *parameters)


def first_evaluation(
    connection: Connection, kernel_id: str, problem_id: str, device: str, precision: str
) -> sqlite3.Row | None:
    """The evaluation of a kernel under these conditions that counts: the first one."""
    return connection.row(
        "select * from evaluations where kernel = ? and problem = ? and device = ? and precision = ?"
        " order by number limit 1",
        kernel_id,
        problem_id,
        device,
        precision,
    )
