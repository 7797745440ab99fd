"""The archive: one SQLite file that keeps every kernel, idea, birth, verdict and timed block.

`Archive` writes runs and kernels, `archive.conversations` what was asked and answered, `archive.notes` notes; other
parts only read (`archive.run_queries`, `archive.kernel_queries`, `archive.run_view`). No other package contains SQL.
The archive is insert-only: no UPDATE, no DELETE, and triggers refuse those of other programs, too; only
`Archive.remove_run` takes facts away. Each method that writes is one transaction, so a process that is killed leaves
whole facts or none.
"""

import sqlite3
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from kbevolve.archive import rows
from kbevolve.archive.connection import Connection, now
from kbevolve.archive.conversations import Questions, Replies
from kbevolve.archive.integrity import Finding, check
from kbevolve.archive.kernel_queries import Kernels, Problems
from kbevolve.archive.merging import Merged, merge
from kbevolve.archive.notes import Notes
from kbevolve.archive.outlines import OutlineEntry, outline
from kbevolve.archive.prefixes import ambiguous, by_prefix
from kbevolve.archive.records import (
    Birth,
    Confirmation,
    Evaluation,
    Idea,
    Kernel,
    KnownDevice,
    Placement,
    ProblemCard,
    Run,
    StopReason,
)
from kbevolve.archive.removal import Removed, remove_run
from kbevolve.archive.run_queries import Runs
from kbevolve.archive.run_view import RunView
from kbevolve.archive.schema import bring_up_to_date
from kbevolve.archive.search_index import SearchIndex
from kbevolve.configs.errors import ArchiveError
from kbevolve.configs.problem import Problem


class Archive:
    """An open archive. Any number of processes may share the file, and threads the object.

    ``Archive(":memory:")`` is a complete archive that lives as long as the object: the double for tests.

    Args:
        path: the file, or ``":memory:"``.
        create: make the file when it is missing; False for commands that only read.
        read_only: never write: the file may be on a medium that refuses it, and an older format is migrated in a copy
            in memory, which does not follow the file. A method that writes raises.

    Raises:
        ArchiveError: the file is missing (and not to be made), cannot be opened or written, is not an archive, or is
            from a newer version. Every method may raise it for a full disk or a file that another process holds.
    """

    def __init__(self, path: Path | str, *, create: bool = True, read_only: bool = False) -> None:
        self._connection = Connection(path, create=create and not read_only, read_only=read_only)
        #: Its parts, by what they are about.
        self.runs = Runs(self._connection)
        self.notes = Notes(self._connection)
        self.kernels = Kernels(self._connection)
        self.problems = Problems(self._connection)
        try:
            bring_up_to_date(self._connection, in_copy=read_only)
        except BaseException:
            self._connection.close()
            raise

    @property
    def path(self) -> str:
        """The file, as it was given."""
        return self._connection.path

    def close(self) -> None:
        """Close the file. Every method that writes has committed when it returns."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Writing

    def add_problem(self, problem: Problem) -> None:
        """Add a problem; the same text is added once."""
        self._add(f"problem {problem.name}", "problems", {**rows.to_row(problem), "at": now()}, known="id")

    def add_run(self, run: Run) -> None:
        """Add a run at its start; its problem must be in the archive."""
        self._add(f"run {run.id}", "runs", rows.to_row(run))

    def add_birth(self, birth: Birth, *, kernel: Kernel | None = None, idea: Idea | None = None) -> None:
        """Add a birth, with its kernel and idea where they are new.

        Raises:
            ArchiveError: this birth (run, generation, island, slot) is there already, or it names a kernel or an idea
                that is neither given nor in the archive.
        """
        with self._fact(f"birth {birth.id}"):
            if kernel is not None:
                self._connection.insert("kernels", rows.to_row(kernel), known="id")
            if idea is not None:
                self._connection.insert("ideas", rows.to_row(idea), known="id")
            for text in rows.birth_texts(birth):
                self._connection.insert("texts", text, known="id")
            self._connection.insert("births", {**rows.birth_row(birth), "at": now()})

    def add_evaluation(self, evaluation: Evaluation) -> None:
        """Add an evaluation with all its timed blocks. A kernel may have several; the first one counts."""
        with self._fact(f"evaluation of {evaluation.kernel}"):
            self._insert_evaluation(evaluation)

    def add_found(self, found: Sequence[tuple[Problem, Kernel, Evaluation]]) -> list[bool]:
        """Add evaluations made elsewhere with their kernels and problems, in one transaction.

        A kernel that is new here is added without a birth. An evaluation that is in the archive already, equal in every
        number, is not added again.

        Returns:
            For each, in order, whether it was new.
        """
        new = []
        with self._fact("an evaluation made elsewhere"):
            for problem, kernel, evaluation in found:
                self._connection.insert("problems", {**rows.to_row(problem), "at": now()}, known="id")
                self._connection.insert("kernels", rows.to_row(kernel), known="id")
                new.append(evaluation not in self.kernels.evaluations(kernel.id))
                if new[-1]:
                    self._insert_evaluation(evaluation)
        return new

    def add_contest(self, confirmations: Sequence[Confirmation], failures: Sequence[Evaluation] = ()) -> None:
        """Add the results of a contest in one transaction: confirmations, and evaluations of kernels that failed.

        Raises:
            ArchiveError: one of the confirmations (run, generation, purpose, kernel) is there already, or it names a
                run or a kernel that is not in the archive.
        """
        with self._fact("confirmation"):
            for failure in failures:
                self._insert_evaluation(failure)
            for confirmation in confirmations:
                row = {**rows.to_row(confirmation), "at": now()}
                number = self._connection.insert("confirmations", row)
                blocks = rows.block_rows(confirmation.blocks, confirmation=number)
                self._connection.insert_all("confirmation_blocks", blocks)

    def add_card(self, card: ProblemCard) -> None:
        """Add a card of a problem in the archive, unless the newest card is equal."""
        with self._fact(f"card of problem {card.problem}"):
            if self.problems.card(card.problem, card.device, card.precision) != card:
                self._connection.insert("cards", {**rows.card_row(card), "at": now()})

    def add_device(self, device: KnownDevice) -> None:
        """Add the description of a device, unless it is known."""
        row = {**rows.to_row(device), "at": now()}
        self._add(f"device {device.fingerprint}", "devices", row, known="fingerprint")

    def add_placement(self, placement: Placement) -> None:
        """Add one placement."""
        self._add("placement", "placements", rows.to_row(placement))

    def add_generation_end(self, run_id: str, generation: int) -> None:
        """Record that a generation of a run is over: all its results are in the archive."""
        row = {"run": run_id, "generation": generation, "at": now()}
        self._add(f"end of generation {generation}", "generation_ends", row)

    def add_stop(self, run_id: str, reason: StopReason) -> None:
        """Record that a run stopped now, and why. A resumed run stops again."""
        with self._fact(f"stop of run {run_id}"):
            births = self._connection.rows("select count(*) from births where run = ?", run_id)[0][0]
            self._connection.insert("stops", {"run": run_id, "reason": reason.name, "births": births, "at": now()})

    def add_transfer(self, run_id: str, knowledge: str) -> None:
        """Record the knowledge of other problems that a run starts with, as text. Once for each run."""
        self._add(f"transfer to run {run_id}", "transfers", {"run": run_id, "knowledge": knowledge, "at": now()})

    def start_session(self, run_id: str) -> str:
        """Record that a session of a run starts now; returns the moment, which `end_session` takes."""
        row = {"run": run_id, "started_at": (started_at := now()), "ended_at": None}
        self._add(f"session of run {run_id}", "sessions", row)
        return started_at

    def end_session(self, run_id: str, started_at: str) -> None:
        """Record that a session ends now. One that was killed has no end; it lasted up to its last fact."""
        row = {"run": run_id, "started_at": started_at, "ended_at": now()}
        self._add(f"end of the session of run {run_id}", "sessions", row)

    # Upkeep

    def merge(self, other: "Archive", runs: Collection[str] | None = None) -> Merged:
        """Add what another archive has and this one lacks: everything, or some runs with what they need.

        The same kernel, the same evaluation and the same run are there once, so merging again adds nothing.

        Raises:
            ArchiveError: a run went on in both archives separately, or the other archive was changed or is incomplete.
                Nothing is then added.
        """
        return merge(self._connection, other._connection, runs)

    def remove_run(self, run: Run) -> Removed:
        """Remove a run with everything that only it uses. No process may work on it (`evolve.runs.lock`)."""
        return remove_run(self._connection, run.id)

    def check(self) -> list[Finding]:
        """The damage that is found in the file; empty for a whole archive."""
        return check(self._connection)

    def pack(self, file: Path) -> None:
        """Write a compact copy, without a log beside it, to a file that is not there. A read-only archive can, too."""
        self._connection.rows("vacuum into ?", str(file.absolute()))

    def _add(self, what: str, table: str, row: rows.Row, *, known: str = "") -> None:
        with self._fact(what):
            self._connection.insert(table, row, known=known)

    def _insert_evaluation(self, evaluation: Evaluation) -> None:
        number = self._connection.insert("evaluations", {**rows.to_row(evaluation), "at": now()})
        self._connection.insert_all("blocks", rows.block_rows(evaluation.blocks, evaluation=number))

    @contextmanager
    def _fact(self, what: str) -> Iterator[None]:
        """One transaction; a violated constraint becomes an `ArchiveError`."""
        try:
            with self._connection.transaction():
                yield
        except sqlite3.IntegrityError as error:
            if error.sqlite_errorname in ("SQLITE_CONSTRAINT_UNIQUE", "SQLITE_CONSTRAINT_PRIMARYKEY"):
                problem = "is there already, and facts are written once; is another process running the same run?"
            elif error.sqlite_errorname == "SQLITE_CONSTRAINT_FOREIGNKEY":
                problem = "names a run, problem, kernel or idea that is not in the archive; add that one first"
            else:
                problem = f"was refused: {error}"
            raise ArchiveError(f"{self.path}: {what} {problem}") from error

    # Reading

    def run_view(self, run: Run) -> RunView:
        """What a search asks of a run while it goes on."""
        return RunView(self._connection, run)

    def questions(self, run: Run) -> Questions:
        """The questions to people and agents outside in a run, and their answers."""
        return Questions(self._connection, run.id)

    def replies(self, run: Run) -> Replies:
        """The replies of models in a run, request by request."""
        return Replies(self._connection, run.id)

    def version(self) -> int:
        """A number that changes whenever another process has written to the file."""
        return self._connection.version()

    def outline(self, run: Run, known: Sequence[OutlineEntry] = ()) -> tuple[OutlineEntry, ...]:
        """The attempts of a run with their results, in short; quick with the entries that were read earlier."""
        return outline(self._connection, run, known)

    def search_index(self) -> SearchIndex:
        """A search in the texts of ideas and kernels, of this connection."""
        return SearchIndex(self._connection)

    def find(self, which: str) -> Kernel | Run:
        """A kernel or a run, by its id or the unique start of it, or "latest" for the newest run.

        Raises:
            ArchiveError: there is neither, or several start so.
        """
        kernels, runs = (by_prefix(self._connection, table, which) for table in ("kernels", "runs"))
        if which == "latest" or (runs and (not kernels or runs == [which])):
            return self.runs.get(which)
        if kernels and (not runs or kernels == [which]):
            return self.kernels.get(which)
        if not kernels:
            raise ArchiveError(
                f"no kernel and no run {which!r} in {self.path}; `kbevolve archive ls` lists the runs, "
                "`kbevolve archive ls latest` the kernels of the last"
            )
        raise ArchiveError(ambiguous(kernels + runs, "kernels and runs", which))

    def device(self, fingerprint: str) -> KnownDevice | None:
        """What a device is; None when no run was judged on it since devices are recorded."""
        sql = "select fingerprint, type, description from devices where fingerprint = ?"
        return rows.read_first(self._connection, KnownDevice, sql, fingerprint)
