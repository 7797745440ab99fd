"""The kernels and the problems of an archive, in whichever run they were judged."""

import sqlite3

from kbevolve.archive import rows
from kbevolve.archive.connection import Connection
from kbevolve.archive.prefixes import by_prefix, only, starting_with
from kbevolve.archive.records import Birth, Confirmation, Evaluation, Kernel, Measurement, ProblemCard, Run
from kbevolve.archive.run_queries import (
    FAILED,
    Runs,
    births_with_texts,
    first_evaluation,
    precision_of,
    reference_kernel,
)
from kbevolve.configs.errors import ArchiveError
from kbevolve.configs.problem import Problem


class Kernels:
    """The kernels of an open archive. Threads may share it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def get(self, which: str) -> Kernel:
        """A kernel by its id or the unique start of it.

        Raises:
            ArchiveError: there is none, or several start so.
        """
        found = by_prefix(self._connection, "kernels", which)
        if not found:
            path = self._connection.path
            raise ArchiveError(
                f"no kernel {which!r} in {path}; `kbevolve archive ls latest` lists those of the last run"
            )
        sql = "select * from kernels where id = ?"
        return rows.read(self._connection, Kernel, sql, only(found, "kernels", which))[0]

    def ids(self, prefix: str = "") -> list[str]:
        """The ids of the newest kernels whose id begins so."""
        return starting_with(self._connection, "kernels", prefix)

    def births(self, kernel_id: str) -> list[Birth]:
        """Every birth of a kernel, in every run, the oldest first."""
        return births_with_texts(self._connection, "births.kernel = ? order by number", kernel_id)

    def evaluation(self, kernel_id: str, problem_id: str, device: str, precision: str) -> Evaluation | None:
        """The first evaluation of a kernel under these conditions, with its blocks; None when there is none."""
        row = first_evaluation(self._connection, kernel_id, problem_id, device, precision)
        return None if row is None else self._with_blocks(Evaluation, row)

    def evaluations(self, kernel_id: str) -> list[Evaluation]:
        """Every evaluation of a kernel, on every problem and device, with its blocks, the oldest first."""
        found = self._connection.rows("select * from evaluations where kernel = ? order by number", kernel_id)
        return [self._with_blocks(Evaluation, row) for row in found]

    def confirmations(self, kernel_id: str) -> list[Confirmation]:
        """Every confirmation of a kernel, in every run, with its blocks, the oldest first."""
        found = self._connection.rows("select * from confirmations where kernel = ? order by number", kernel_id)
        return [self._with_blocks(Confirmation, row) for row in found]

    def _with_blocks(self, kind: type[rows.Record], row: sqlite3.Row) -> rows.Record:
        table, owner = ("blocks", "evaluation") if kind is Evaluation else ("confirmation_blocks", "confirmation")
        sql = f"select * from {table} where {owner} = ? order by position"
        return rows.from_row(kind, row, blocks=tuple(rows.read(self._connection, Measurement, sql, row["number"])))


class Problems:
    """The problems of an open archive. Threads may share it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def get(self, problem_id: str) -> Problem:
        """A problem by its id, with the text that was run, wherever its file is now.

        Raises:
            ArchiveError: there is none.
        """
        found = rows.read_first(self._connection, Problem, "select * from problems where id = ?", problem_id)
        if found is None:
            raise ArchiveError(
                f"no problem with id {problem_id!r} in {self._connection.path}; `kbevolve archive ls` lists its runs"
            )
        return found

    def card(self, problem_id: str, device: str, precision: str) -> ProblemCard | None:
        """The newest card of a problem under these conditions; None when there is none."""
        row = self._connection.row(
            "select * from cards where problem = ? and device = ? and precision = ? order by number desc limit 1",
            problem_id,
            device,
            precision,
        )
        return rows.card_from(row) if row else None

    def best(self, problem_id: str, device: str, precision: str) -> Evaluation | None:
        """The best CORRECT kernel of a problem by the lower end of its speedup's interval, None when there is none.

        A run with a champion is represented by that one alone, with its confirmed speedup; other kernels count by
        their first evaluation. A kernel that failed later does not count at all, the reference itself only where there
        is no other.
        """
        conditions, runs = (problem_id, device, precision), Runs(self._connection)
        alike = rows.read(self._connection, Run, "select * from runs where problem = ? and device = ?", *conditions[:2])
        champions = {
            run.id: one
            for run in alike
            if precision_of(run) == precision and (one := runs.champion(run.id)) is not None
        }
        fittest = rows.read_first(
            self._connection,
            Evaluation,
            "select * from evaluations where number in ("
            "  select min(number) from evaluations where problem = ?1 and device = ?2 and precision = ?3"
            f"  group by kernel) and verdict = 'CORRECT' and kernel not in ({FAILED}) and kernel not in ("
            f"  select kernel from births where kernel is not null and run in ({', '.join('?' * len(champions))}))"
            " order by kernel = ?, speedup_low desc, identical_to is not null, kernel limit 1",
            *conditions,
            0,
            *champions,
            reference_kernel(self._connection, problem_id, device),
        )
        leading = max(champions.values(), key=lambda one: one.speedup_low, default=None)
        if leading is not None and (fittest is None or leading.speedup_low > (fittest.timing.speedup_low or 0.0)):
            return Kernels(self._connection).evaluation(leading.kernel, *conditions)
        return fittest

    def devices(self, problem_id: str) -> list[str]:
        """Fingerprints of the devices on which a problem has a CORRECT kernel."""
        found = self._connection.rows(
            "select distinct device from evaluations where problem = ? and verdict = 'CORRECT' order by device",
            problem_id,
        )
        return [row["device"] for row in found]
