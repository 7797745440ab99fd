"""The tables, as numbered migrations. A released migration is never edited; a change of the tables appends a function.

All tables are insert-only, by triggers in the file. `_plain_words` alone rewrites rows: it replaces stored words by
other words for the same facts, in the transaction that also puts the triggers back.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from kbevolve.archive.views import VIEWS

if TYPE_CHECKING:
    from sqlite_utils import Database


# fmt: off
def _first_tables(db: "Database") -> None:
    """Everything of the first version. Columns are the fields of `archive.records`, under the same names."""
    text, whole, real = str, int, float

    table(db, "problems", dict(
        id=text, name=text, source=text, path=text, cpu_sizes=text, summary=text, at=text), pk="id")
    table(db, "runs", dict(
        number=whole, id=text, problem_name=text, problem=text, device=text, seed=whole, settings=text,
        versions=text, created=text), refers={"problem": "problems.id"})
    table(db, "kernels", dict(id=text, backend=text, source=text), pk="id")
    table(db, "ideas", dict(
        id=text, title=text, mechanism=text, technique=text, bottleneck=text, expected_gain=real, proposed_by=text),
        pk="id", nullable=("expected_gain",))
    # Prompts and replies, whole, each distinct text once: siblings and repairs share long prompts, and the rows of
    # `births` stay narrow, so that reading a run does not read its conversations.
    table(db, "texts", dict(id=text, text=text), pk="id")
    table(db, "births", dict(
        number=whole, run=text, generation=whole, island=whole, slot=whole, operator=text, state=text, parents=text,
        kernel=text, idea=text, note=text, prompt=text, reply=text, model=text, prompt_tokens=whole,
        completion_tokens=whole, seconds=real, at=text),
        nullable=("kernel", "idea", "prompt", "reply"),
        refers={"run": "runs.id", "kernel": "kernels.id", "idea": "ideas.id", "prompt": "texts.id",
                "reply": "texts.id"})
    table(db, "evaluations", dict(
        number=whole, kernel=text, problem=text, device=text, precision=text, verdict=text, message=text,
        precision_class=text, error=real, reference_error=real, allclose=whole, time_ms=real, reference_ms=real,
        speedup=real, speedup_low=real, speedup_high=real, tags=text, build_seconds=real, seconds=real, at=text),
        nullable=("precision_class", "error", "reference_error", "allclose", "time_ms", "reference_ms", "speedup",
                  "speedup_low", "speedup_high"),
        refers={"kernel": "kernels.id", "problem": "problems.id"})
    table(db, "blocks", dict(evaluation=whole, position=whole, role=text, round=whole, times_ms=text),
        pk=("evaluation", "position"), refers={"evaluation": "evaluations.number"})
    table(db, "placements", dict(
        number=whole, run=text, island=whole, niche=text, kernel=text, generation=whole, via=text),
        refers={"run": "runs.id", "kernel": "kernels.id"})
    # `births`: how many the run had then, so that a stop is known to be history once the run went on.
    table(db, "stops", dict(number=whole, run=text, reason=text, births=whole, at=text), refers={"run": "runs.id"})

    db.table("runs").create_index(["id"], unique=True)
    db.table("births").create_index(["run", "generation", "island", "slot"], unique=True)
    db.table("births").create_index(["kernel", "run"])
    db.table("evaluations").create_index(["kernel", "problem", "device", "precision"])
    db.table("evaluations").create_index(["problem", "device", "precision"])
    db.table("placements").create_index(["run"])
    db.table("stops").create_index(["run"])


def _confirmations(db: "Database") -> None:
    """Worst tile, comparison with eager, best baseline, sandbox, profile; confirmations; problem cards."""
    text, whole, real = str, int, float

    # Added in SQL: rows of before keep NULL, or "" for the sandbox, which was not recorded then.
    for column in ("worst_tile real", "standing text", "speedup_best real", "best_baseline text",
                   "sandbox text not null default ''", "profile text"):
        db.execute(f"alter table evaluations add column {column}")
    table(db, "confirmations", dict(
        number=whole, run=text, generation=whole, purpose=text, kernel=text, rival=text, standing=text, ratio=real,
        ratio_low=real, ratio_high=real, speedup=real, speedup_low=real, speedup_high=real, time_ms=real,
        reference_ms=real, at=text),
        nullable=("rival",), refers={"run": "runs.id", "kernel": "kernels.id", "rival": "kernels.id"})
    table(db, "confirmation_blocks", dict(confirmation=whole, position=whole, role=text, round=whole, times_ms=text),
        pk=("confirmation", "position"), refers={"confirmation": "confirmations.number"})
    table(db, "cards", dict(number=whole, problem=text, device=text, precision=text, card=text, at=text),
        refers={"problem": "problems.id"})

    # A kernel is compared with its rival once a generation and purpose; a resumed run looks up what was measured.
    db.table("confirmations").create_index(["run", "generation", "purpose", "kernel"], unique=True)
    db.table("confirmations").create_index(["kernel"])
    db.table("cards").create_index(["problem", "device", "precision"])


def _phases(db: "Database") -> None:
    """Start, device and phases of each evaluation; unknown for earlier ones."""
    for column in ("began real not null default 0", "phases text not null default '{}'",
                   "place text not null default ''"):
        db.execute(f"alter table evaluations add column {column}")


def _closings(db: "Database") -> None:
    """Which generations are over: with several under way, a run resumes where it really ended."""
    table(db, "closings", dict(run=str, generation=int, at=str), pk=("run", "generation"), refers={"run": "runs.id"})
    # A resumed run reads its placements generation by generation.
    db.table("placements").create_index(["run", "generation"])


def _sittings(db: "Database") -> None:
    """Sessions of a run: a row at the start, and another with the end, which a killed session lacks."""
    table(db, "sittings", dict(number=int, run=str, began=str, ended=str), nullable=("ended",),
        refers={"run": "runs.id"})
    db.table("sittings").create_index(["run"])


def _legacies(db: "Database") -> None:
    """Knowledge of other problems that a run starts with, and which of several models was asked for each birth."""
    table(db, "legacies", dict(run=str, legacy=str, at=str), pk="run", refers={"run": "runs.id"})
    db.execute("alter table births add column author text not null default ''")


def _questions(db: "Database") -> None:
    """Questions to people and agents, their answers, and descriptions of devices for machines without them."""
    text, whole = str, int

    place = dict(run=text, generation=whole, island=whole, slot=whole, number=whole)
    table(db, "questions", dict(**place, operator=text, stage=text, at=text), pk=tuple(place),
        refers={"run": "runs.id"})
    table(db, "answers", dict(**place, text=text, following=text, by=text, at=text), pk=tuple(place),
        nullable=("following",), refers={"run": "runs.id"})
    table(db, "devices", dict(fingerprint=text, type=text, description=text, at=text), pk="fingerprint")


def _novelty(db: "Database") -> None:
    """Canonical form of each kernel, and replies of models before the birth is recorded."""
    db.execute("alter table births add column written text references kernels(id)")
    db.execute("alter table births add column form text not null default ''")
    db.table("births").create_index(["run", "form"])
    db.table("births").create_index(["written"])
    table(db, "replies", dict(run=str, digest=str, reply=str, at=str), pk=("run", "digest"), refers={"run": "runs.id"})


def _compiled_code(db: "Database") -> None:
    """Traits and hash of a kernel's binary, and the judged kernel with an identical binary."""
    for column in ("traits text", "code text not null default ''", "same_as text references kernels(id)"):
        db.execute(f"alter table evaluations add column {column}")
    # A kernel that fails later invalidates those with an identical binary; few rows have one.
    db.execute("create index evaluations_same_as on evaluations (same_as) where same_as is not null")


def _plain_words(db: "Database") -> None:
    """Names that a kernel engineer knows, for columns, tables and stored values; the facts stay as they are."""
    for table_name, columns in {
        "births": {"form": "canonical_hash", "written": "proposed_kernel", "author": "model_alias"},
        "evaluations": {"code": "binary_hash", "same_as": "identical_to", "place": "device_instance",
                        "began": "started_at", "standing": "comparison"},
        "confirmations": {"standing": "comparison"},
        "sittings": {"began": "started_at", "ended": "ended_at"},
        "legacies": {"legacy": "knowledge"},
    }.items():
        for old, new in columns.items():
            db.execute(f"alter table {table_name} rename column {old} to {new}")
    for old, new in {"sittings": "sessions", "legacies": "transfers", "closings": "generation_ends"}.items():
        db.execute(f"alter table {old} rename to {new}")
        for change in ("update", "delete"):
            db.execute(f"drop trigger {old}_no_{change}")
        _refuse_changes(db, new)
    for index in ("idx_sittings_run", "idx_births_run_form", "idx_births_written", "evaluations_same_as"):
        db.execute(f"drop index {index}")
    db.table("sessions").create_index(["run"])
    db.table("births").create_index(["run", "canonical_hash"])
    db.table("births").create_index(["proposed_kernel"])
    db.execute("create index evaluations_identical_to on evaluations (identical_to) where identical_to is not null")

    for table_name, column, words in (
        ("births", "state", {"BORN": "CREATED", "FAMILIAR": "NEAR_DUPLICATE"}),
        ("evaluations", "tags", {'"left-work"': '"pending-work"', '"left-processes"': '"leaked-processes"',
                                 '"left-threads"': '"leaked-threads"', '"untold-time"': '"unreported-time"'}),
        ("evaluations", "phases", {'"gate":': '"device wait":', '"room":': '"memory wait":', '"read":': '"lint":',
                                   '"end":': '"cleanup":'}),
    ):
        db.execute(f"drop trigger {table_name}_no_update")
        for old, new in words.items():
            db.execute(f"update {table_name} set {column} = replace({column}, ?, ?) where instr({column}, ?)",
                       (old, new, old))
        _refuse_changes(db, table_name, "update")


def _views(db: "Database") -> None:
    """Views for other programs."""
    for name, select in VIEWS.items():
        db.execute(f"create view {name} as {select}")


def _notes(db: "Database") -> None:
    """Notes of people about runs and kernels."""
    table(db, "notes", dict(number=int, about=str, text=str, at=str))
    db.table("notes").create_index(["about"])
# fmt: on


def table(
    db: "Database",
    name: str,
    columns: Mapping[str, type],
    *,
    pk: str | tuple[str, ...] = "number",
    nullable: Sequence[str] = (),
    refers: Mapping[str, str] | None = None,
) -> None:
    """Create an insert-only table; released migrations use it, so it does not change either.

    A key `number` counts up by itself. Only `nullable` columns may be NULL. A column in `refers` holds a value of the
    ``"table.column"`` there.
    """
    db.table(name).create(
        dict(columns),
        pk=pk,
        not_null=[column for column in columns if column not in nullable and column != pk],
        foreign_keys=[(column, *_table_and_column(other)) for column, other in (refers or {}).items()],
    )
    _refuse_changes(db, name)


def _refuse_changes(db: "Database", name: str, *changes: str) -> None:
    """Have the file itself refuse changes of a table (all without `changes`), whatever program opens it."""
    for change in changes or ("update", "delete"):
        db.execute(
            f"create trigger {name}_no_{change} before {change} on {name} "
            "begin select raise(abort, 'an archive is insert-only'); end"
        )


def _table_and_column(name: str) -> tuple[str, str]:
    table, _, column = name.partition(".")
    return table, column


#: In order; a file's format is how many of them it has been through.
MIGRATIONS: tuple[Callable[["Database"], None], ...] = (
    _first_tables,
    _confirmations,
    _phases,
    _closings,
    _sittings,
    _legacies,
    _questions,
    _novelty,
    _compiled_code,
    _plain_words,
    _views,
    _notes,
)
#: The oldest format that is read as it is, without its later migrations: they add only what kbevolve does not read.
READABLE = 10
