"""Remove a run: the only change of an archive that takes facts away, and only when a person asks for it.

The triggers that refuse changes are dropped and put back in the transaction that removes the rows, so no other process
ever sees the file without them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kbevolve.archive.connection import Connection
from kbevolve.configs.errors import ArchiveError

#: Tables whose rows belong to one run; the run itself is last.
_OF_RUN = (
    "births", "placements", "stops", "sessions", "transfers", "generation_ends", "questions", "answers", "replies",
    "confirmations",
)  # fmt: skip
#: Kernels that stay: those that other runs name, those that were only evaluated, and those whose verdict one of
#: them has. Parents are JSON, which another program may have written badly.
_USED = """
with recursive used(id) as (
    select kernel from births union select proposed_kernel from births
    union select value from births, json_each(iif(json_valid(parents), parents, '[]'))
    union select kernel from placements union select kernel from confirmations union select rival from confirmations
    union select identical_to from evaluations where kernel not in (select id from temp.of_run)
    union select identical_to from used join evaluations on evaluations.kernel = used.id)
select id from used where id is not null
"""
#: Then what nothing names any more, in this order.
_ORPHANS = {
    "ideas": "id not in (select idea from births where idea is not null)",
    "texts": "id not in (select prompt from births where prompt is not null"
    " union select reply from births where reply is not null)",
}
#: Of the run's problem only: another process may have begun with a problem of which nothing was judged yet.
_OF_PROBLEM = {
    "cards": "problem = ?1 and ?1 not in (select problem from runs union select problem from evaluations)",
    "problems": "id = ?1 and ?1 not in (select problem from runs union select problem from evaluations)",
}


@dataclass(frozen=True, slots=True)
class Removed:
    """What a run took with it."""

    attempts: int
    kernels: int
    evaluations: int
    #: Kernels of the run that stay: other runs use them.
    kept: int


def remove_run(connection: Connection, run_id: str) -> Removed:
    """Remove a run with everything that only it uses, in one transaction.

    Raises:
        ArchiveError: a fact that stays names one that would go; the file is then unchanged.
    """
    # Off, because SQLite would look for the children of each row through columns without an index; checked at the end.
    connection.rows("pragma foreign_keys = off")
    try:
        with connection.transaction(), _changeable(connection):
            broken = _broken(connection)
            removed = _remove(connection, run_id)
            if new := _broken(connection) - broken:
                raise ArchiveError(f"{connection.path}: run {run_id} cannot be removed: {len(new)} other facts name it")
    finally:
        connection.rows("pragma foreign_keys = on")
    return removed


def _remove(connection: Connection, run_id: str) -> Removed:
    problem = connection.rows("select problem from runs where id = ?", run_id)[0]["problem"]
    connection.rows("create temp table of_run (id text primary key)")
    connection.rows(
        "insert or ignore into temp.of_run select kernel from births where run = ?1 and kernel is not null"
        " union select proposed_kernel from births where run = ?1 and proposed_kernel is not null",
        run_id,
    )
    blocks = "confirmation in (select number from confirmations where run = ?)"
    _delete(connection, "confirmation_blocks", blocks, run_id)
    deleted = {table: _delete(connection, table, "run = ?", run_id) for table in _OF_RUN}
    _delete(connection, "runs", "id = ?", run_id)
    _delete(connection, "notes", "about = ?", run_id)
    kept = _delete(connection, "temp.of_run", f"id in ({_USED})")
    of_run = "kernel in (select id from temp.of_run)"
    _delete(connection, "blocks", f"evaluation in (select number from evaluations where {of_run})")
    evaluations = _delete(connection, "evaluations", of_run)
    _delete(connection, "notes", "about in (select id from temp.of_run)")
    kernels = _delete(connection, "kernels", "id in (select id from temp.of_run)")
    for table, condition in _ORPHANS.items():
        _delete(connection, table, condition)
    for table, condition in _OF_PROBLEM.items():
        _delete(connection, table, condition, problem)
    connection.rows("drop table temp.of_run")
    return Removed(attempts=deleted["births"], kernels=kernels, evaluations=evaluations, kept=kept)


def _delete(connection: Connection, table: str, condition: str, *parameters: object) -> int:
    connection.rows(f"delete from {table} where {condition}", *parameters)
    return int(connection.rows("select changes()")[0][0])


def _broken(connection: Connection) -> set[tuple[object, ...]]:
    return {tuple(row) for row in connection.rows("pragma foreign_key_check")}


@contextmanager
def _changeable(connection: Connection) -> Iterator[None]:
    """Without the triggers that refuse to delete."""
    triggers = connection.rows(
        "select name, sql from sqlite_master where type = 'trigger' and name like '%\\_no\\_delete' escape '\\'"
    )
    for row in triggers:
        connection.rows(f'drop trigger "{row["name"]}"')
    yield
    for row in triggers:
        connection.rows(row["sql"])
