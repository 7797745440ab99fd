"""What a search reads while it runs: the generations and kernels of one run, query by query.

Every query uses an index and returns few rows: a child costs the same in a run of a hundred kernels and of a million,
and the past need not stay in memory. The one exception is `RunView.contenders`.
"""

from collections.abc import Collection

from kbevolve.archive import rows
from kbevolve.archive.champion import CHALLENGE
from kbevolve.archive.connection import Connection
from kbevolve.archive.records import Birth, BirthState, Comparison, Evaluation, Idea, Kernel, Operator, Placement, Run
from kbevolve.archive.run_queries import BIRTH, FAILED, births_with_texts, first_evaluation, precision_of

#: Columns of an evaluation without its blocks, renamed to differ from those of a birth.
_FOUND = ", ".join(f"found.{name} as found_{name}" for name in rows.columns(Evaluation))

#: The evaluation of a birth's kernel that counts: the first under the run's conditions.
_FIRST = (
    "found.number = (select min(number) from evaluations"
    " where kernel = births.kernel and problem = ? and device = ? and precision = ?)"
)


class RunView:
    """The queries about one run of the archive. Threads may share it."""

    def __init__(self, connection: Connection, run: Run) -> None:
        self._connection = connection
        self._run = run.id
        self._conditions = (run.problem, run.device, precision_of(run))

    # Generations

    def last_generation(self) -> int | None:
        """The newest generation that has a birth; None when there is none."""
        row = self._connection.row("select max(generation) from births where run = ?", self._run)
        return None if row is None else row[0]

    def last_ended(self) -> int | None:
        """The newest generation that is over (`Archive.add_generation_end`); None when none is."""
        row = self._connection.row("select max(generation) from generation_ends where run = ?", self._run)
        return None if row is None else row[0]

    def births(self, generation: int) -> list[Birth]:
        """The births of a generation in order of island and slot, without prompts and replies."""
        sql = f"select {BIRTH} from births where run = ? and generation = ? order by island, slot"
        return rows.read(self._connection, Birth, sql, self._run, generation)

    def conversation(self, birth: Birth) -> tuple[str, str]:
        """Prompt and reply of a birth; "" without a model."""
        where = "births.run = ? and births.generation = ? and births.island = ? and births.slot = ?"
        place = birth.run, birth.generation, birth.island, birth.slot
        (found,) = births_with_texts(self._connection, where, *place)
        return found.prompt, found.reply

    def verdicts(self, generation: int) -> list[tuple[Birth, Evaluation | None]]:
        """The same births, each with the evaluation that counts; without blocks."""
        found = self._connection.rows(
            f"select {BIRTH}, {_FOUND} from births left join evaluations as found on {_FIRST}"
            " where births.run = ? and births.generation = ? order by births.island, births.slot",
            *self._conditions,
            self._run,
            generation,
        )
        return [
            (
                rows.from_row(Birth, row),
                rows.from_row(Evaluation, {name: row[f"found_{name}"] for name in rows.columns(Evaluation)})
                if row["found_kernel"] is not None
                else None,
            )
            for row in found
        ]

    def placements(self, generation: int) -> list[Placement]:
        """The placements of a generation, in the order they were made."""
        sql = "select * from placements where run = ? and generation = ? order by number"
        return rows.read(self._connection, Placement, sql, self._run, generation)

    # Kernels

    def kernel(self, kernel_id: str) -> Kernel:
        """A kernel of the archive, by its whole id."""
        (kernel,) = rows.read(self._connection, Kernel, "select * from kernels where id = ?", kernel_id)
        return kernel

    def idea(self, idea_id: str) -> Idea:
        """An idea of the archive, by its id."""
        (idea,) = rows.read(self._connection, Idea, "select * from ideas where id = ?", idea_id)
        return idea

    def evaluation(self, kernel_id: str) -> Evaluation | None:
        """The evaluation of a kernel that counts, made by any run; without blocks. None when there is none."""
        row = first_evaluation(self._connection, kernel_id, *self._conditions)
        return None if row is None else rows.from_row(Evaluation, row)

    def first_birth(self, kernel_id: str) -> Birth | None:
        """The first birth of a kernel in the run, without prompt and reply; None when there is none."""
        sql = f"select {BIRTH} from births where kernel = ? and run = ? order by +generation, island, slot limit 1"
        return rows.read_first(self._connection, Birth, sql, kernel_id, self._run)

    def knows(self, kernel_id: str, *, generation: int) -> bool:
        """Whether this kernel was created for judging, up to and including a generation."""
        # "+" keeps SQLite from the index by generations, which would read the whole run.
        where = "kernel = ? and run = ? and +generation <= ? and +state <> ?"
        return self._has_birth(where, kernel_id, self._run, generation, BirthState.NEAR_DUPLICATE.name)

    def saw(self, kernel_id: str, *, generation: int) -> bool:
        """Whether this kernel was proposed and recorded under an equal kernel, up to and including a generation."""
        where = "proposed_kernel = ? and run = ? and +generation <= ?"
        return self._has_birth(where, kernel_id, self._run, generation)

    def with_canonical_hash(self, canonical_hash: str, *, generation: int) -> str | None:
        """The first kernel of this canonical form up to and including a generation; None when there is none."""
        row = self._connection.row(
            "select kernel from births where run = ? and canonical_hash = ? and +generation <= ? and +state = ?"
            " order by +generation, +island, +slot limit 1",
            self._run,
            canonical_hash,
            generation,
            BirthState.CREATED.name,
        )
        return None if row is None else str(row["kernel"])

    def knows_of(self, kernel_id: str, operators: Collection[Operator], *, before: tuple[int, int]) -> bool:
        """Whether one of these operators created this kernel before the given generation and island."""
        marks = ", ".join("?" * len(operators))
        where = f"kernel = ? and run = ? and operator in ({marks}) and (+generation, +island) < (?, ?)"
        return self._has_birth(where, kernel_id, self._run, *(operator.name for operator in operators), *before)

    def _has_birth(self, where: str, *parameters: object) -> bool:
        return self._connection.row(f"select 1 from births where {where} limit 1", *parameters) is not None

    # Contests

    def newest_evaluation(self) -> int:
        """Number of the newest evaluation in the archive, 0 when there is none; later ones have higher numbers."""
        (row,) = self._connection.rows("select max(number) from evaluations")
        return row[0] or 0

    def failed_since(self, number: int) -> set[str]:
        """Kernels of the run that passed at first and then failed, in an evaluation newer than `number`.

        Kernels whose verdict is that of an identical binary fail with it.
        """
        found = {row["kernel"] for row in self._connection.rows(FAILED, *self._conditions, number)}
        return {kernel for kernel in found if self.first_birth(kernel) is not None}

    def published(self, generation: int) -> float | None:
        """The speedup of the kernel that last won a challenge, up to a generation; None without one.

        Later failures do not change it: past improvements stay improvements.
        """
        row = self._connection.row(
            "select speedup from confirmations where run = ? and generation <= ? and purpose = ? and comparison = ?"
            " order by number desc limit 1",
            self._run,
            generation,
            CHALLENGE,
            Comparison.FASTER.name,
        )
        return None if row is None else float(row["speedup"])

    def contenders(self, *, generation: int, above: float, count: int) -> list[str]:
        """Ids of the fittest CORRECT kernels up to a generation whose speedup is at least `above` with confidence.

        That is the lower end of its interval. The fittest first, at most `count`. It reads the whole run (2 µs a
        birth): for the start of a session, after a champion failed and for the final, not for every generation.
        """
        found = self._connection.rows(
            "select distinct found.kernel, found.speedup_low from births"
            f" join evaluations as found on {_FIRST}"
            " where births.run = ? and births.generation <= ? and found.verdict = 'CORRECT' and found.speedup_low > ?"
            # A kernel with the verdict of an identical binary would compete with itself.
            " and not exists (select 1 from births as other where other.run = births.run"
            " and other.kernel = found.identical_to)"
            " order by found.speedup_low desc, found.kernel limit ?",
            *self._conditions,
            self._run,
            generation,
            above,
            count,
        )
        return [row["kernel"] for row in found]
