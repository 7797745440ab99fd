"""`dataset`: every birth of runs with its prompts, replies, code, verdict and reward, as JSONL or Parquet.

One row is one birth. The rows of one `trajectory` are a child and its repairs, in the order of `turn`.
"""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from kbevolve.archive.record_json import plain
from kbevolve.archive.records import Birth, BirthState, Evaluation, Operator, Run, Verdict
from kbevolve.archive.run_queries import precision_of
from kbevolve.archive.store import Archive
from kbevolve.configs.errors import UsageError
from kbevolve.evolve.exports.files import whole_file

#: What a data set may be, by the ending of its file.
ENDINGS = (".jsonl", ".parquet")
#: The part of the reward that a correct kernel gets for being correct (Kevin, arXiv 2507.11948).
_FOR_CORRECT = 0.3
#: How the archive separates the requests for one child, the answers to them, and the messages of a request.
_REQUEST = re.compile(r"^===== request \d+: (.+) =====\n", re.MULTILINE)
_ANSWER = re.compile(r"^===== answer \d+: .+ =====\n\n", re.MULTILINE)
_MESSAGE = re.compile(r"^\[(system|user|assistant)\]\n", re.MULTILINE)


def write_dataset(archive: Archive, runs: Iterable[Run], output: Path) -> int:
    """Write the births of runs and return how many they are.

    Raises:
        UsageError: the file ends in neither ``.jsonl`` nor ``.parquet``, or pyarrow is missing for the latter.
        ArchiveError: the file cannot be written.
    """
    check_dataset(output)
    rows = (row for run in runs for row in rows_of(archive, run))
    count = 0
    with whole_file(output) as file:
        if output.suffix == ".parquet":
            from pyarrow import Table, parquet

            table = Table.from_pylist(list(rows))
            parquet.write_table(table, file)
            return int(table.num_rows)
        for count, row in enumerate(rows, 1):  # noqa: B007
            # In ASCII: readers of lines disagree on what ends one.
            file.write(json.dumps(row, allow_nan=False).encode("ascii") + b"\n")
    return count


def check_dataset(output: Path) -> None:
    """Check that this file can be written here, before anything is read.

    Raises:
        UsageError: the ending is no known one, or pyarrow is missing.
    """
    if output.suffix not in ENDINGS:
        raise UsageError(f"{output}: end a data set in {' or '.join(ENDINGS)}")
    if output.suffix == ".parquet":
        try:
            import pyarrow  # noqa: F401
        except ImportError:
            raise UsageError(
                f"{output}: Parquet needs pyarrow: pip install 'kbevolve[parquet]', or write {output.stem}.jsonl"
            ) from None


def rows_of(archive: Archive, run: Run) -> Iterator[dict[str, Any]]:
    """The births of a run in their order, as plain values."""
    kernels, evaluations = archive.runs.kernels(run.id), archive.runs.evaluations(run.id)
    ideas, problem = archive.runs.ideas(run.id), archive.problems.get(run.problem)
    before: Birth | None = None
    first, turn = "", 0
    for birth in archive.runs.births(run.id):  # in order of generation, island and slot
        if before is not None and _continues(birth, before):
            turn += 1
        else:
            first, turn = birth.id, 0
        before = birth
        kernel, evaluation = kernels.get(birth.kernel or ""), evaluations.get(birth.kernel or "")
        timing, accuracy = (evaluation.timing, evaluation.accuracy) if evaluation else (None, None)
        yield plain(
            {
                "birth": birth.id,
                "run": run.id,
                "created": run.created,
                "problem": run.problem_name,
                "problem_id": run.problem,
                "reference": problem.source,
                "device": run.device,
                "precision": precision_of(run),
                "trajectory": first,
                "turn": turn,
                "generation": birth.generation,
                "island": birth.island,
                "operator": birth.operator,
                "state": birth.state,
                "parents": birth.parents,
                "idea": ideas.get(birth.idea or ""),
                "note": birth.note,
                "model": birth.model,
                "requests": requests_of(birth.prompt, birth.reply),
                "prompt": birth.prompt,
                "reply": birth.reply,
                "prompt_tokens": birth.prompt_tokens,
                "completion_tokens": birth.completion_tokens,
                "seconds": birth.seconds,
                "kernel": birth.kernel,
                "backend": kernel and kernel.backend,
                "code": kernel and kernel.source,
                "verdict": evaluation and evaluation.verdict,
                "message": evaluation and evaluation.message,
                "tags": evaluation.tags if evaluation else (),
                "error": accuracy and accuracy.error,
                "time_ms": timing and timing.time_ms,
                "reference_ms": timing and timing.reference_ms,
                "speedup": timing and timing.speedup,
                "speedup_low": timing and timing.speedup_low,
                "speedup_high": timing and timing.speedup_high,
                "reward": reward_of(birth.state, evaluation),
            }
        )


def reward_of(state: BirthState, evaluation: Evaluation | None) -> float | None:
    """0.3 and the speedup over eager for a correct kernel, 0 for one that failed or for no code; None when not judged.

    Source: the score of one kernel in Kevin (arXiv 2507.11948), before it is discounted over turns.
    """
    if evaluation is None:
        return 0.0 if state is BirthState.NO_CODE else None
    if evaluation.verdict is not Verdict.CORRECT:
        return 0.0
    return _FOR_CORRECT + (evaluation.timing.speedup or 0.0)


def _continues(birth: Birth, before: Birth) -> bool:
    """Whether a birth is one more turn of the one before it."""
    same_place = (birth.generation, birth.island) == (before.generation, before.island)
    return same_place and (birth.operator is Operator.REPAIR or before.state is BirthState.NEAR_DUPLICATE)


def requests_of(prompt: str, reply: str) -> list[dict[str, Any]]:
    """The requests for one child as chats: stage, messages with their roles, and the reply."""
    if not prompt:
        return []
    parts = _REQUEST.split(prompt)[1:] or ["code", prompt]
    answers = _ANSWER.split(reply)[1:] or [reply]
    found, system = [], []
    for number, (stage, text) in enumerate(zip(parts[::2], parts[1::2], strict=True)):
        pieces = _MESSAGE.split(text.strip("\n"))[1:] or ["user", text]
        said = zip(pieces[::2], pieces[1::2], strict=True)
        messages = [{"role": role, "content": content.strip("\n")} for role, content in said]
        if messages[0]["role"] == "system":  # said once for all requests of a child
            system, messages = messages[:1], messages[1:]
        answer = answers[number].strip("\n") if number < len(answers) else ""
        found.append({"stage": stage, "messages": [*system, *messages], "reply": answer})
    return found
