"""A run in outline: one short entry for each attempt, cheap enough to read ten thousand of them for a page.

A `Birth` with its `Evaluation` costs about 0.1 ms to read; an entry costs a tenth of that. A reader that
follows a run reads only what is new, because rows never change.
"""

import json
from collections.abc import Sequence
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
    #: Counts the attempts of the archive in the order they were written.
    number: int

    @property
    def words(self) -> str:
        """What it tried: the title of its idea, else its note, else its operator."""
        return self.title or self.note or self.operator.value


#: The first fields, which never change.
_CREATED = OutlineEntry._fields.index("verdict")
_SELECT = """
select births.generation, births.island, births.slot, births.operator, births.state, births.parents, births.kernel,
    coalesce(births.idea, ''), coalesce(ideas.title, ''), coalesce(ideas.technique, ''), births.note,
    found.verdict, found.time_ms, found.speedup, found.speedup_low, found.speedup_high, births.number
from births
left join evaluations as found on found.number = (
    select number from evaluations where kernel = births.kernel and problem = ?1 and device = ?2 and precision = ?3
    order by number limit 1)
left join ideas on ideas.id = births.idea
"""
_ORDER = "order by births.generation, births.island, births.slot"
_ALL = f"{_SELECT} where births.run = ?4 {_ORDER}"
#: Through numbers, not through the index of runs, which would look at every attempt of the run.
_NEW = (
    f"{_SELECT} where +births.run = ?4 and (births.number >= ?5 or births.number in (select value from json_each(?6)))"
)


def outline(connection: Connection, run: Run, known: Sequence[OutlineEntry] = ()) -> tuple[OutlineEntry, ...]:
    """The attempts of a run in order of generation, island and slot.

    Of the entries that were read earlier only those are read again that had no verdict.
    """
    conditions = run.problem, run.device, precision_of(run), run.id
    newest = max(known, key=lambda one: one.number, default=None)
    if newest is None:
        return tuple(_entry(*row) for row in connection.each(_ALL, *conditions))
    waiting = {one.number for one in known if one.kernel is not None and one.verdict is None}
    found = connection.rows(_NEW, *conditions, newest.number, json.dumps(list(waiting)))
    new = [_entry(*row) for row in found]
    if not any(one[:_CREATED] == newest[:_CREATED] for one in new):
        return outline(connection, run)  # the run was removed meanwhile, and another copy of it merged
    again = waiting | {newest.number}
    return tuple(sorted([*new, *(one for one in known if one.number not in again)]))


def _entry(*values: Any) -> OutlineEntry:
    generation, island, slot, operator, state, parents, kernel, idea, title, technique, note, verdict, *others = values
    read: list[Any] = [member(Operator, operator), member(BirthState, state)]
    read += [tuple(json.loads(parents)) if parents != "[]" else (), kernel, idea, title, technique, note]
    read += [None if verdict is None else member(Verdict, verdict), *others]
    return OutlineEntry(generation, island, slot, *read)
