"""The archive: one SQLite file that remembers every kernel, idea, birth, verdict and timed block, for ever.

This is the only door to the file: `Archive` writes, `archive.queries` holds the SELECTs behind its reading methods,
`archive.run_view` those of a search that goes on, and nobody else speaks SQL. It is insert-only: there is no UPDATE and
no DELETE, and triggers refuse those of others, too. Each method that writes is one transaction, so a process that is
killed leaves whole facts or none.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from kbevolve.archive import queries, rows, run_queries
from kbevolve.archive.connection import Connection
from kbevolve.archive.conversations import Questions
from kbevolve.archive.known_devices import KnownDevice, known_device, remember
from kbevolve.archive.queries import RunSummary
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
from kbevolve.archive.replies import Replies
from kbevolve.archive.run_view import Ledger
from kbevolve.archive.schema import bring_up_to_date
from kbevolve.archive.sittings import wall_seconds
from kbevolve.configs.errors import ArchiveError
from kbevolve.configs.problem import Problem

__all__ = ["Archive", "RunSummary"]


class Archive:
    """An open archive. Any number of processes may share the file, and threads the object.

    ``Archive(":memory:")`` is a complete archive that lives as long as the object: the double for tests.

    Args:
        path: the file, or ``":memory:"``.
        create: make the file when it is missing; False for commands that only look.

    Raises:
        ArchiveError: the file is missing (and not to be made), cannot be opened or written, is not an archive, or is
            from a newer version. Every method may raise it for a full disk or a file that another process holds.
    """

    def __init__(self, path: Path | str, *, create: bool = True) -> None:
        self._connection = Connection(path, create=create)
        try:
            bring_up_to_date(self._connection)
        except BaseException:
            self._connection.close()
            raise

    @property
    def path(self) -> str:
        """The file, as it was given."""
        return self._connection.path

    def close(self) -> None:
        """Close the file. Nothing waits to be written: every method that writes has committed when it returns."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Writing

    def add_problem(self, problem: Problem) -> None:
        """Remember a problem's text; one that is there already (the same text) stays."""
        with self._fact(f"problem {problem.name}"):
            self._connection.insert("problems", {**rows.problem_row(problem), "at": _now()}, known="id")

    def add_run(self, run: Run) -> None:
        """Remember the start of a run; its problem must be there."""
        with self._fact(f"run {run.id}"):
            self._connection.insert("runs", rows.run_row(run))

    def add_birth(self, birth: Birth, *, kernel: Kernel | None = None, idea: Idea | None = None) -> None:
        """Remember a birth, with its kernel and idea where they are new.

        Raises:
            ArchiveError: this birth (run, generation, island, slot) is there already, or it names a kernel or an idea
                that is neither given nor there.
        """
        with self._fact(f"birth {birth.id}"):
            if kernel is not None:
                self._connection.insert("kernels", rows.kernel_row(kernel), known="id")
            if idea is not None:
                self._connection.insert("ideas", rows.idea_row(idea), known="id")
            for text in rows.birth_texts(birth):
                self._connection.insert("texts", text, known="id")
            self._connection.insert("births", {**rows.birth_row(birth), "at": _now()})

    def add_evaluation(self, evaluation: Evaluation) -> None:
        """Remember a verdict with all its timed blocks. A kernel may have several; the first is the one that counts."""
        with self._fact(f"evaluation of {evaluation.kernel}"):
            self._insert_evaluation(evaluation)

    def add_found(self, found: Sequence[tuple[Problem, Kernel, Evaluation]]) -> list[bool]:
        """Remember what was found elsewhere, all of it in one transaction: evaluations with their kernels and problems.

        A kernel that nobody bore here is remembered without a birth. An evaluation that is there already, the same in
        every number, is not added again.

        Returns:
            Of each, in order, whether it was new.
        """
        new = []
        with self._fact("what was found elsewhere"):
            for problem, kernel, evaluation in found:
                self._connection.insert("problems", {**rows.problem_row(problem), "at": _now()}, known="id")
                self._connection.insert("kernels", rows.kernel_row(kernel), known="id")
                new.append(evaluation not in queries.evaluations_of(self._connection, kernel.id))
                if new[-1]:
                    self._insert_evaluation(evaluation)
        return new

    def add_confirmation(self, confirmation: Confirmation) -> None:
        """Remember a fresh measurement of a kernel that would be champion, with all its timed blocks."""
        self.add_contest((confirmation,))

    def add_contest(self, confirmations: Sequence[Confirmation], failures: Sequence[Evaluation] = ()) -> None:
        """Remember all that came of one contest in one transaction: who was confirmed, and who did not pass this time.

        Raises:
            ArchiveError: one of the confirmations (run, generation, purpose, kernel) is there already, or it names a
                run or a kernel that is not.
        """
        with self._fact("confirmation"):
            for failure in failures:
                self._insert_evaluation(failure)
            for confirmation in confirmations:
                row = {**rows.confirmation_row(confirmation), "at": _now()}
                number = self._connection.insert("confirmations", row)
                blocks = rows.block_rows(confirmation.blocks, confirmation=number)
                self._connection.insert_all("confirmation_blocks", blocks)

    def add_card(self, card: ProblemCard) -> None:
        """Remember what was found out about a problem that is there, unless the newest card says the same."""
        with self._fact(f"card of problem {card.problem}"):
            if queries.card(self._connection, card.problem, card.device, card.precision) != card:
                self._connection.insert("cards", {**rows.card_row(card), "at": _now()})

    def add_device(self, device: KnownDevice) -> None:
        """Remember what a device is, unless it is known."""
        remember(self._connection, device)

    def add_placement(self, placement: Placement) -> None:
        """Remember that a kernel entered a niche."""
        self.add_placements((placement,))

    def add_placements(self, placements: Sequence[Placement]) -> None:
        """Remember several placements (a migration) in one transaction."""
        with self._fact("placement"):
            self._connection.insert_all("placements", [rows.placement_row(placement) for placement in placements])

    def add_generation_end(self, run_id: str, generation: int) -> None:
        """Remember that a generation of a run is over: everything that came of it is in the archive."""
        with self._fact(f"end of generation {generation}"):
            self._connection.insert("generation_ends", {"run": run_id, "generation": generation, "at": _now()})

    def add_stop(self, run_id: str, reason: StopReason) -> None:
        """Remember that a run stopped now, and why. A resumed run stops again."""
        with self._fact(f"stop of run {run_id}"):
            births = self._connection.rows("select count(*) from births where run = ?", run_id)[0][0]
            self._connection.insert("stops", {"run": run_id, "reason": reason.name, "births": births, "at": _now()})

    def add_transfer(self, run_id: str, knowledge: str) -> None:
        """Remember what a run is given of other problems, as text, before anything is bred. Once for each run."""
        with self._fact(f"transfer to run {run_id}"):
            self._connection.insert("transfers", {"run": run_id, "knowledge": knowledge, "at": _now()})

    def start_session(self, run_id: str) -> str:
        """Remember that somebody sat down at a run now.

        Returns:
            The moment, by which `end_session` knows it again.
        """
        started_at = _now()
        with self._fact(f"session of run {run_id}"):
            self._connection.insert("sessions", {"run": run_id, "started_at": started_at, "ended_at": None})
        return started_at

    def end_session(self, run_id: str, started_at: str) -> None:
        """Remember that a sitting ended now. One that was killed has no end; it lasted up to its last fact."""
        with self._fact(f"end of the session of run {run_id}"):
            self._connection.insert("sessions", {"run": run_id, "started_at": started_at, "ended_at": _now()})

    def _insert_evaluation(self, evaluation: Evaluation) -> None:
        number = self._connection.insert("evaluations", {**rows.evaluation_row(evaluation), "at": _now()})
        self._connection.insert_all("blocks", rows.block_rows(evaluation.blocks, evaluation=number))

    @contextmanager
    def _fact(self, what: str) -> Iterator[None]:
        """One transaction; a broken rule of the tables is said in words."""
        try:
            with self._connection.transaction():
                yield
        except sqlite3.IntegrityError as error:
            if error.sqlite_errorname in ("SQLITE_CONSTRAINT_UNIQUE", "SQLITE_CONSTRAINT_PRIMARYKEY"):
                problem = "is there already, and facts are written once; is another process running the same run?"
            elif error.sqlite_errorname == "SQLITE_CONSTRAINT_FOREIGNKEY":
                problem = "names a run, problem, kernel or idea that is not there; add that one first"
            else:
                problem = f"was refused: {error}"
            raise ArchiveError(f"{self.path}: {what} {problem}") from error

    # Reading: runs

    def runs(self) -> list[RunSummary]:
        """Every run with its counts and its best kernel, newest first."""
        return [queries.summary(self._connection, run) for run in run_queries.runs(self._connection)]

    def summary(self, run: Run) -> RunSummary:
        """Counts and best kernel of one run."""
        return queries.summary(self._connection, run)

    def run(self, which: str = "latest") -> Run:
        """A run by its id, the unique start of it, or "latest".

        Raises:
            ArchiveError: there is none, or several start so; the message names the nearest.
        """
        return run_queries.run(self._connection, which)

    def latest_run_of(self, problem_name: str) -> Run:
        """The newest run of a problem, by the name it was asked for, or its path.

        Raises:
            ArchiveError: there is none; the message names the nearest.
        """
        return run_queries.latest_run_of(self._connection, problem_name)

    def runs_like(self, run: Run) -> list[Run]:
        """The runs on the same problem text and the same device, `run` among them, the oldest first."""
        return run_queries.runs_like(self._connection, run)

    def runs_elsewhere(self, run: Run, *, limit: int) -> list[Run]:
        """Earlier runs on other problems on the same device, the newest first."""
        return run_queries.runs_elsewhere(self._connection, run, limit=limit)

    def transfer(self, run_id: str) -> str | None:
        """What a run was given of other problems (`add_transfer`); None when nothing was written down."""
        return run_queries.transfer(self._connection, run_id)

    def problem(self, problem_id: str) -> Problem:
        """A problem by its id, with the text that was run, wherever its file is now."""
        return queries.problem(self._connection, problem_id)

    def births(self, run_id: str, *, texts: bool = True) -> list[Birth]:
        """The births of a run in order of generation, island and slot.

        Without `texts`, prompts and replies are left out ("") and reading stays cheap however long they are.
        """
        return queries.births(self._connection, run_id, texts=texts)

    def placements(self, run_id: str) -> list[Placement]:
        """The placements of a run, in the order they were made."""
        return queries.placements(self._connection, run_id)

    def ideas(self, run_id: str) -> dict[str, Idea]:
        """The ideas that the births of a run carry out, by id."""
        return queries.ideas(self._connection, run_id)

    def ledger(self, run: Run) -> Ledger:
        """What a search asks of a run while it goes on."""
        return Ledger(self._connection, run)

    def questions(self, run: Run) -> Questions:
        """What people and agents outside were asked and told in a run."""
        return Questions(self._connection, run.id)

    def replies(self, run: Run) -> Replies:
        """What models answered in a run, request by request."""
        return Replies(self._connection, run.id)

    def tokens(self, run_id: str) -> tuple[int, int]:
        """Prompt and completion tokens that a run has used."""
        return queries.tokens(self._connection, run_id)

    def wall_seconds(self, run_id: str) -> float:
        """Seconds of all sittings at a run together; 0 for one that was over before sittings were written down."""
        return wall_seconds(self._connection, run_id)

    # Reading: kernels

    def kernel(self, which: str) -> Kernel:
        """A kernel by its id or the unique start of it.

        Raises:
            ArchiveError: there is none, or several start so.
        """
        return queries.kernel(self._connection, which)

    def kernels(self, run_id: str) -> dict[str, Kernel]:
        """The kernels that were born in a run, by id."""
        return queries.kernels(self._connection, run_id)

    def find(self, which: str) -> Kernel | Run:
        """A kernel or a run, by its id or the start of it, or "latest" for the newest run.

        Raises:
            ArchiveError: there is neither, or several start so.
        """
        return queries.find(self._connection, which)

    def births_of(self, kernel_id: str) -> list[Birth]:
        """Every birth of a kernel, in every run, the first first."""
        return queries.births_of(self._connection, kernel_id)

    def evaluation(
        self, kernel_id: str, problem_id: str, device: str, precision: str, *, blocks: bool = False
    ) -> Evaluation | None:
        """The first evaluation of a kernel under these conditions; None when it was not evaluated so."""
        return queries.evaluation(self._connection, kernel_id, problem_id, device, precision, blocks=blocks)

    def evaluations(self, run_id: str) -> dict[str, Evaluation]:
        """Kernel id to its first evaluation on the run's problem, device and precision, without blocks.

        Kernels that an earlier run measured count: they are not measured twice.
        """
        return queries.evaluations(self._connection, self.run(run_id))

    def evaluations_of(self, kernel_id: str) -> list[Evaluation]:
        """Every evaluation of a kernel, on every problem and device, with its blocks, the first first."""
        return queries.evaluations_of(self._connection, kernel_id)

    def confirmations(self, run_id: str) -> list[Confirmation]:
        """The confirmations of a run, in the order they were made; without blocks."""
        return queries.confirmations(self._connection, run_id)

    def confirmations_of(self, kernel_id: str) -> list[Confirmation]:
        """Every confirmation of a kernel, in every run, with its blocks, the first first."""
        return queries.confirmations_of(self._connection, kernel_id)

    def failed(self, run_id: str) -> set[str]:
        """Kernels of a run that passed at first, but not when they were judged again under its conditions."""
        return queries.failed(self._connection, self.run(run_id))

    def champion(self, run_id: str) -> Confirmation | None:
        """The confirmation that a run publishes (`archive.champion`); None while nobody was confirmed."""
        return queries.champion(self._connection, self.run(run_id))

    def card(self, problem_id: str, device: str, precision: str) -> ProblemCard | None:
        """The newest card of a problem under these conditions; None when there is none."""
        return queries.card(self._connection, problem_id, device, precision)

    def best(self, problem_id: str, device: str, precision: str) -> Evaluation | None:
        """The best CORRECT kernel of a problem by what it has at least shown, None when there is none.

        A run with a champion is represented by that one alone, with its confirmed speedup.
        """
        return queries.best(self._connection, problem_id, device, precision)

    def device(self, fingerprint: str) -> KnownDevice | None:
        """What a device is; None when no run was judged on it since devices are written down."""
        return known_device(self._connection, fingerprint)

    def devices(self, problem_id: str) -> list[str]:
        """Fingerprints of the devices on which a problem has a CORRECT kernel."""
        return queries.devices(self._connection, problem_id)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
