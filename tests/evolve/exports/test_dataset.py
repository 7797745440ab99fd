"""A data set reads back: every birth, its chat, its verdict and its reward."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from kbevolve.archive.parts import grouped
from kbevolve.archive.records import Birth, BirthState, Evaluation, Kernel, Operator, Verdict
from kbevolve.archive.store import Archive
from kbevolve.evolve.exports.dataset import requests_of, reward_of, rows_of
from kbevolve.evolve.llm.client import Message, Reply
from kbevolve.evolve.proposers.codegen.conversation import Conversation, QuestionStage


def lines_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="ascii").splitlines()]


def test_every_birth_is_a_line_that_reads_back(kbevolve: Any, small_archive: Any, tmp_path: Path) -> None:
    words = ("export", "--archive", small_archive.path, "--format", "dataset", "-o")
    outcome = kbevolve(*words, tmp_path / "births.jsonl")
    assert outcome.code == 0, outcome.err
    assert f"Wrote {tmp_path / 'births.jsonl'}: {len(small_archive.births)} attempts of 1 run." in outcome.out
    rows = {row["birth"]: row for row in lines_of(tmp_path / "births.jsonl")}
    assert set(rows) == {birth.id for birth in small_archive.births}
    for birth in small_archive.births:
        row = rows[birth.id]
        assert (row["prompt"], row["reply"], row["parents"]) == (birth.prompt, birth.reply, list(birth.parents))
        assert (row["operator"], row["state"], row["kernel"]) == (birth.operator, birth.state, birth.kernel)
        if birth.kernel is not None:
            assert Kernel.from_source(row["code"]).id == birth.kernel
            evaluation = small_archive.evaluations[birth.kernel]
            assert row["verdict"] == evaluation.verdict.name.lower()
            assert row["speedup"] == evaluation.timing.speedup
            assert row["message"] == evaluation.message
    assert {row["verdict"] for row in rows.values()} >= {"correct", "wrong", "build_failed", None}
    with_idea = [row for row in rows.values() if row["idea"]]
    assert with_idea[0]["idea"]["title"] in ("Keep a block of C in registers", "Unroll the inner loop")


def test_repairs_are_turns_of_their_childs_trajectory(small_archive: Any) -> None:
    with Archive(small_archive.path) as archive:
        rows = list(rows_of(archive, small_archive.run))
    repairs = [row for row in rows if row["operator"] == "repair"]
    assert repairs
    for repair in repairs:
        turns = [row for row in rows if row["trajectory"] == repair["trajectory"]]
        assert [row["turn"] for row in turns] == [0, 1]
        assert turns[0]["kernel"] == repair["parents"][0]
    assert all(row["trajectory"] == row["birth"] for row in rows if row["turn"] == 0)


def test_runs_and_problems_choose_the_births(
    kbevolve: Any, small_archive: Any, make_archive: Any, tmp_path: Path
) -> None:
    make_archive(run_id="softmax-2", problem_name="L1/softmax", seed=1)
    words = ("export", "--archive", small_archive.path, "--format", "dataset", "--force", "-o", tmp_path / "b.jsonl")
    for options, wanted in (
        ((), {"softmax-2", small_archive.run.id}),
        (("--run", "softmax"), {"softmax-2"}),
        (("--problem", "L1/matmul"), {small_archive.run.id}),
    ):
        assert kbevolve(*words, *options).code == 0
        assert {row["run"] for row in lines_of(tmp_path / "b.jsonl")} == wanted


def test_what_makes_no_sense_is_refused(kbevolve: Any, small_archive: Any, tmp_path: Path) -> None:
    words = ("export", "--archive", small_archive.path, "--format", "dataset", "-o")
    assert "end a data set in .jsonl or .parquet" in kbevolve(*words, tmp_path / "births.csv").err
    assert "leave out --kernel" in kbevolve(*words, tmp_path / "b.jsonl", "--kernel", small_archive.best).err
    (tmp_path / "mine.jsonl").write_text("mine")
    assert "--force writes over it" in kbevolve(*words, tmp_path / "mine.jsonl").err
    assert (tmp_path / "mine.jsonl").read_text() == "mine"
    modelnew = kbevolve(
        "export", "--archive", small_archive.path, "-o", tmp_path / "b.py", "--run", "latest", "--run", "x"
    )
    assert modelnew.code == 2
    assert "name one kernel: with --kernel" in modelnew.err


def test_without_pyarrow_parquet_says_what_to_install(
    kbevolve: Any, small_archive: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    outcome = kbevolve(
        "export", "--archive", small_archive.path, "--format", "dataset", "-o", tmp_path / "births.parquet"
    )
    assert outcome.code == 2
    assert "pip install 'kbevolve[parquet]', or write births.jsonl" in outcome.err
    assert list(tmp_path.glob("*.parquet")) == []


def test_parquet_has_the_same_rows(kbevolve: Any, small_archive: Any, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    words = ("export", "--archive", small_archive.path, "--format", "dataset", "-o")
    assert kbevolve(*words, tmp_path / "births.parquet").code == 0
    assert kbevolve(*words, tmp_path / "births.jsonl").code == 0
    assert parquet.read_table(tmp_path / "births.parquet").to_pylist() == lines_of(tmp_path / "births.jsonl")


def evaluation(verdict: Verdict, speedup: float | None = None) -> Evaluation:
    return grouped(
        Evaluation, kernel="k", problem="p", device="d", precision="fp32", verdict=verdict, speedup=speedup
    )  # fmt: skip


@pytest.mark.parametrize(
    ("state", "found", "reward"),
    [
        (BirthState.CREATED, evaluation(Verdict.CORRECT, 2.0), 2.3),
        (BirthState.DUPLICATE, evaluation(Verdict.CORRECT, 2.0), 2.3),
        (BirthState.CREATED, evaluation(Verdict.WRONG), 0.0),
        (BirthState.NO_CODE, None, 0.0),
        (BirthState.NEAR_DUPLICATE, None, None),
        (BirthState.CREATED, None, None),
    ],
)
def test_the_reward_is_that_of_kevin(state: BirthState, found: Evaluation | None, reward: float | None) -> None:
    assert reward_of(state, found) == reward


def test_a_conversation_is_a_list_of_chats() -> None:
    """As the proposer writes it: ideas first, then the code, which is asked for again."""
    replies = iter(["ideas, then\n\ntwo paragraphs", "prose", "```python\ncode\n```"])
    conversation = Conversation(
        send=lambda request: Reply(text=next(replies), model="m", prompt_tokens=1, completion_tokens=1),
        child="c", system="You write kernels.",
    )  # fmt: skip
    task = Message(role="user", content="The task\n\nin paragraphs.")
    conversation.ask(QuestionStage.IDEA, [task])
    conversation.ask(QuestionStage.CODE, [task])
    more = [task, Message(role="assistant", content="prose"), Message(role="user", content="Code, please.")]
    conversation.ask(QuestionStage.CODE, more, again=True)
    proposal = conversation.proposal(BirthState.CREATED, note="")
    system = {"role": "system", "content": "You write kernels."}
    chat = [system, {"role": "user", "content": "The task\n\nin paragraphs."}]
    assert requests_of(proposal.prompt, proposal.reply) == [
        {"stage": "ideas", "messages": chat, "reply": "ideas, then\n\ntwo paragraphs"},
        {"stage": "code", "messages": chat, "reply": "prose"},
        {
            "stage": "code, asked again",
            "messages": [
                *chat,
                {"role": "assistant", "content": "prose"},
                {"role": "user", "content": "Code, please."},
            ],
            "reply": "```python\ncode\n```",
        },
    ]


def test_texts_in_another_form_are_one_request() -> None:
    assert requests_of("", "") == []
    assert requests_of("Make it fast.", "No.") == [
        {"stage": "code", "messages": [{"role": "user", "content": "Make it fast."}], "reply": "No."}
    ]


def test_a_child_proposed_once_more_continues_its_trajectory(small_archive: Any) -> None:
    run = small_archive.run.id
    with Archive(small_archive.path) as archive:
        for slot, state in enumerate((BirthState.NEAR_DUPLICATE, BirthState.NO_CODE)):
            archive.add_birth(
                Birth(run=run, generation=90, island=0, slot=slot, operator=Operator.MUTATE, state=state)
            )  # fmt: skip
        rows = list(rows_of(archive, small_archive.run))[-2:]
    assert [(row["trajectory"], row["turn"]) for row in rows] == [(f"{run}/g90/i0/s0", 0), (f"{run}/g90/i0/s0", 1)]
