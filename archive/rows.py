"""Records as rows and back: one pair of pure functions for each record, exact in both directions.

A column has the name of its field. Enums are stored by member name (numbers and sentences may change between versions),
tuples and mappings as JSON, whose numbers Python reads back exactly.
"""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from kbevolve.archive.identity import digest
from kbevolve.archive.parts import columns_of, flat, grouped
from kbevolve.archive.records import (
    Backend,
    Birth,
    BirthState,
    Comparison,
    Confirmation,
    Evaluation,
    Idea,
    Kernel,
    Launch,
    Measurement,
    Operator,
    Placement,
    ProblemCard,
    Profile,
    Run,
    Trait,
    Verdict,
)
from kbevolve.configs.errors import ArchiveError
from kbevolve.configs.problem import Problem

Row = dict[str, Any]
Member = TypeVar("Member", bound=Enum)


def problem_row(problem: Problem) -> Row:
    """Row of `problems`."""
    return {
        "id": problem.id,
        "name": problem.name,
        "source": problem.source,
        "path": str(problem.path),
        "cpu_sizes": json.dumps(dict(problem.cpu_sizes)),
        "summary": problem.summary,
    }


def problem_from(row: sqlite3.Row) -> Problem:
    """The problem of a row; its text is what was run then; the file at its path may differ today."""
    return Problem(
        name=row["name"],
        source=row["source"],
        path=Path(row["path"]),
        cpu_sizes=json.loads(row["cpu_sizes"]),
        summary=row["summary"],
    )


def run_row(run: Run) -> Row:
    """Row of `runs`."""
    return _fields(run) | {"versions": json.dumps(dict(run.versions))}


def run_from(row: sqlite3.Row) -> Run:
    """The run of a row."""
    return Run(**_values(row, Run) | {"versions": json.loads(row["versions"])})


def kernel_row(kernel: Kernel) -> Row:
    """Row of `kernels`."""
    return _fields(kernel) | {"backend": kernel.backend.name}


def kernel_from(row: sqlite3.Row) -> Kernel:
    """The kernel of a row."""
    return Kernel(id=row["id"], backend=member(Backend, row["backend"]), source=row["source"])


def idea_row(idea: Idea) -> Row:
    """Row of `ideas`."""
    return {"id": idea.id} | _fields(idea)


def idea_from(row: sqlite3.Row) -> Idea:
    """The idea of a row."""
    return Idea(**_values(row, Idea))


def birth_row(birth: Birth) -> Row:
    """Row of `births`; prompt and reply are ids of `texts` (`birth_texts`), None for none."""
    return _fields(birth) | {
        "operator": birth.operator.name,
        "state": birth.state.name,
        "parents": json.dumps(birth.parents),
        "prompt": digest(birth.prompt) if birth.prompt else None,
        "reply": digest(birth.reply) if birth.reply else None,
    }


def birth_texts(birth: Birth) -> list[Row]:
    """Rows of `texts` that a birth needs."""
    return [{"id": digest(text), "text": text} for text in (birth.prompt, birth.reply) if text]


def birth_from(row: sqlite3.Row) -> Birth:
    """The birth of a row that holds prompt and reply themselves, or None when they are not read."""
    return Birth(
        **_values(row, Birth)
        | {
            "operator": member(Operator, row["operator"]),
            "state": member(BirthState, row["state"]),
            "parents": tuple(json.loads(row["parents"])),
            "prompt": row["prompt"] or "",
            "reply": row["reply"] or "",
        }
    )


def evaluation_row(evaluation: Evaluation) -> Row:
    """Row of `evaluations`, without its blocks (`block_rows`)."""
    row = flat(evaluation)
    del row["blocks"]
    comparison, traits = evaluation.timing.comparison, evaluation.compiled.traits
    return row | {
        "verdict": evaluation.verdict.name,
        "comparison": comparison.name if comparison else None,
        "tags": json.dumps(evaluation.tags),
        "traits": None if traits is None else json.dumps([trait.name for trait in traits]),
        "profile": _profile_json(evaluation.profile) if evaluation.profile else None,
        "phases": json.dumps(dict(evaluation.execution.phases)),
    }


def block_rows(blocks: Sequence[Measurement], **owner: int) -> list[Row]:
    """Rows of `blocks` or `confirmation_blocks`; `owner` names the column and the number it was stored under."""
    return [
        {
            **owner,
            "position": position,
            "role": block.role,
            "round": block.round,
            "times_ms": json.dumps(block.times_ms),
        }
        for position, block in enumerate(blocks)
    ]


def evaluation_from(row: sqlite3.Row | Mapping[str, Any], blocks: Sequence[sqlite3.Row] = ()) -> Evaluation:
    """The evaluation of a row and, when given, of its blocks' rows in order."""
    values = {name: row[name] for name in columns_of(Evaluation) if name != "blocks"}
    return grouped(
        Evaluation,
        **values
        | {
            "verdict": member(Verdict, row["verdict"]),
            "allclose": None if row["allclose"] is None else bool(row["allclose"]),
            "comparison": None if row["comparison"] is None else member(Comparison, row["comparison"]),
            "tags": tuple(json.loads(row["tags"])),
            "traits": None if row["traits"] is None else _traits_from(row["traits"]),
            "profile": None if row["profile"] is None else _profile_from(row["profile"]),
            "phases": json.loads(row["phases"]),
            "blocks": _blocks_from(blocks),
        },
    )


def confirmation_row(confirmation: Confirmation) -> Row:
    """Row of `confirmations`, without its blocks (`block_rows`)."""
    row = _fields(confirmation)
    del row["blocks"]
    return row | {"comparison": confirmation.comparison.name}


def confirmation_from(row: sqlite3.Row, blocks: Sequence[sqlite3.Row] = ()) -> Confirmation:
    """The confirmation of a row and, when given, of its blocks' rows in order."""
    values = {name: row[name] for name in Confirmation.__dataclass_fields__ if name != "blocks"}
    return Confirmation(
        **values | {"comparison": member(Comparison, row["comparison"]), "blocks": _blocks_from(blocks)},
    )


def card_row(card: ProblemCard) -> Row:
    """Row of `cards`: what it is looked up by, and the whole as JSON."""
    fields = {name: dict(value) if isinstance(value, Mapping) else value for name, value in _fields(card).items()}
    return {
        "problem": card.problem,
        "device": card.device,
        "precision": card.precision,
        "card": json.dumps(fields, sort_keys=True),
    }


def card_from(row: sqlite3.Row) -> ProblemCard:
    """The card of a row."""
    return ProblemCard(**_known(json.loads(row["card"]), ProblemCard))


def placement_row(placement: Placement) -> Row:
    """Row of `placements`."""
    return _fields(placement)


def placement_from(row: sqlite3.Row) -> Placement:
    """The placement of a row."""
    return Placement(**_values(row, Placement))


def member(kind: type[Member], name: str) -> Member:
    """The enum's member of this name.

    Raises:
        ArchiveError: there is none; the file was written by a kbevolve that knows more.
    """
    try:
        return kind[name]
    except KeyError:
        raise ArchiveError(
            f"the archive holds the {kind.__name__} {name!r}, which this kbevolve does not know; "
            "a newer one wrote it: pip install --upgrade kbevolve"
        ) from None


def _blocks_from(blocks: Sequence[sqlite3.Row]) -> tuple[Measurement, ...]:
    return tuple(
        Measurement(role=block["role"], round=block["round"], times_ms=tuple(json.loads(block["times_ms"])))
        for block in blocks
    )


def _traits_from(text: str) -> tuple[Trait, ...]:
    return tuple(member(Trait, name) for name in json.loads(text))


def _profile_json(profile: Profile) -> str:
    launches = [_fields(launch) for launch in profile.launches]
    return json.dumps(_fields(profile) | {"launches": launches, "counters": dict(profile.counters)})


def _profile_from(text: str) -> Profile:
    values = _known(json.loads(text), Profile)
    launches = tuple(Launch(**_known(launch, Launch)) for launch in values["launches"])
    return Profile(**values | {"launches": launches})


def _known(values: Row, kind: Any) -> Row:
    # A later version may store more fields in the same column.
    return {name: values[name] for name in kind.__dataclass_fields__ if name in values}


def _fields(record: Any) -> Row:
    return {name: getattr(record, name) for name in record.__dataclass_fields__}


def _values(row: sqlite3.Row, kind: Any) -> Row:
    return {name: row[name] for name in kind.__dataclass_fields__}
