"""A run in outline: one short entry for each attempt, cheap enough to read ten thousand of them for a page.

A `Birth` with its `Evaluation` costs about 0.1 ms to read; an entry costs a hundredth of that.
"""

import json
from typing import Any, NamedTuple

from kbevolve.archive.connection import Connection
from kbevolve.archive.records import BirthState, Operator, Run, Verdict
from kbevolve.archive.rows import member
from kbevolve.archive.run_queries import precision_of


class OutlineEntry(NamedTuple):
    """One attempt of a run, and the evaluation that counts for its kernel: the first under the run's conditions."""

    generation: int
    island: int
    slot: int
    operator: Operator
    state: BirthState
    #: Kernel ids, the main parent first.
    parents: tuple[str, ...]
    #: Kernel id, None without a kernel.
    kernel: str | None
    #: Id, title and technique of its idea; "" without one.
    idea: str
    title: str
    technique: str
    #: One line for people: what changed, or why there is no kernel.
    note: str
    #: None when there is no kernel, or it is not judged yet.
    verdict: Verdict | None
    #: Milliseconds, and the speedup over eager with its 95 % interval; None unless CORRECT.
    time_ms: float | None
    speedup: float | None
    speedup_low: float | None
    speedup_high: float | None

    @property
    def words(self) -> str:
        """What it tried: the title of its idea, else its note, else its operator."""
        return self.title or self.note or self.operator.value


_SQL = """
select births.generation, births.island, births.slot, births.operator, births.state, births.parents, births.kernel,
    coalesce(births.idea, ''), coalesce(ideas.title, ''), coalesce(ideas.technique, ''), births.note,
    found.verdict, found.time_ms, found.speedup, found.speedup_low, found.speedup_high
from births
left join evaluations as found on found.number = (
    select number from evaluations where kernel = births.kernel and problem = ?1 and device = ?2 and precision = ?3
    order by number limit 1)
left join ideas on ideas.id = births.idea
where births.run = ?4 order by births.generation, births.island, births.slot
"""


def outline(connection: Connection, run: Run) -> tuple[OutlineEntry, ...]:
    """The attempts of a run in order of generation, island and slot."""
    found = connection.rows(_SQL, run.problem, run.device, precision_of(run), run.id)
    return tuple(_entry(*row) for row in found)


def _entry(*values: Any) -> OutlineEntry:
    generation, island, slot, operator, state, parents, kernel, idea, title, technique, note, verdict, *times = values
    read: list[Any] = [member(Operator, operator), member(BirthState, state)]
    read += [tuple(json.loads(parents)) if parents != "[]" else (), kernel, idea, title, technique, note]
    read += [None if verdict is None else member(Verdict, verdict), *times]
    return OutlineEntry(generation, island, slot, *read)
