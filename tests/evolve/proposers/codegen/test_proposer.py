"""The LLM proposer against a scripted model; the number of requests is part of every case."""

import json
import re

import pytest

from kbevolve.archive.records import BirthState, Idea, Kernel, Operator, Verdict
from kbevolve.configs.errors import ProposerError
from kbevolve.configs.playbook import load_playbook
from kbevolve.evolve.llm.client import Reply
from tests.evolve.doubles import ScriptedModel
from tests.evolve.proposers.codegen.briefs import (
    BROKEN,
    CHILD,
    DIFF,
    IDEAS,
    OTHER,
    PARENT,
    REFERENCE,
    WHOLE,
    brief,
    failure,
    proposer,
    script,
)

# ---- the four operators ------------------------------------------------------------------------------------------


def test_mutate_carries_out_an_idea_as_an_edit(model: ScriptedModel) -> None:
    script(model, IDEAS, DIFF)
    proposal = proposer(model).propose(brief(Operator.MUTATE))
    assert proposal.state is BirthState.CREATED
    assert proposal.kernel == Kernel.from_source(CHILD)
    assert proposal.idea == Idea(
        title="Larger tiles",
        mechanism="Fewer loads.",
        technique="block-tiling",
        expected_gain=1.5,
        proposed_by="m-1",
    )
    assert proposal.note == "Larger tiles (1 edit)"
    assert (proposal.model, proposal.prompt_tokens, proposal.completion_tokens) == ("m-1", 200, 40)
    assert proposal.parents is None
    ideas, code = model.requests
    assert "JSON" in ideas.last
    assert PARENT.strip() in ideas.last
    assert "Larger tiles (block-tiling)" in code.last
    assert "SEARCH" in code.last
    assert PARENT.strip() in code.last
    assert ideas.messages[0] == code.messages[0], "one system prompt, so that endpoints can cache it"


def test_rewrite_takes_a_whole_file(model: ScriptedModel) -> None:
    script(model, IDEAS, f"The old file:\n```python\n{PARENT}```\nThe new one:\n{WHOLE}")
    proposal = proposer(model).propose(brief(Operator.REWRITE))
    assert proposal.kernel == Kernel.from_source(CHILD)
    assert proposal.note == "Larger tiles (whole file)"
    assert len(model.requests) == 2
    assert "SEARCH" not in model.requests[1].last


def test_a_parent_without_a_kernel_is_rewritten_not_edited(model: ScriptedModel) -> None:
    script(model, IDEAS, WHOLE)
    assert proposer(model).propose(brief(Operator.MUTATE, REFERENCE)).kernel == Kernel.from_source(CHILD)
    assert "SEARCH" not in model.requests[1].last
    assert "A complete file of this kind" in model.requests[1].last


def test_cross_asks_once_with_both_parents(model: ScriptedModel) -> None:
    script(model, f"**IDEA:** the loader of kernel 1 with the tile of kernel 2.\n\n{WHOLE}")
    proposal = proposer(model).propose(brief(Operator.CROSS, PARENT, OTHER))
    assert proposal.kernel == Kernel.from_source(CHILD)
    assert proposal.idea is not None
    assert proposal.idea.title == "the loader of kernel 1 with the tile of kernel 2."
    assert proposal.idea.technique == "recombine"
    (request,) = model.requests
    assert PARENT.strip() in request.last
    assert OTHER.strip() in request.last


def test_repair_shows_the_failed_file_and_the_message(model: ScriptedModel) -> None:
    idea = Idea(title="Larger tiles", mechanism="Fewer loads.", technique="block-tiling")
    failed = failure(PARENT, Verdict.BUILD_FAILED, "error: 'i' was not declared\n" + "x" * 9000, idea)
    script(model, DIFF)
    proposal = proposer(model).propose(brief(Operator.REPAIR, OTHER, repair=failed))
    assert proposal.kernel == Kernel.from_source(CHILD)
    assert proposal.idea == idea
    assert proposal.note == "repair of build failed: Larger tiles (1 edit)"
    (request,) = model.requests
    assert [turn["role"] for turn in request.messages] == ["system", "user", "assistant", "user"]
    assert PARENT.strip() in request.messages[2]["content"]
    assert "error: 'i' was not declared" in request.last
    assert "build failed" in request.last
    assert len(request.last) < 4000, "a compiler's log must not fill the context"


# ---- answers that cannot be used ---------------------------------------------------------------------------------


def test_a_broken_diff_gets_one_follow_up_in_the_same_conversation(model: ScriptedModel) -> None:
    script(model, IDEAS, BROKEN, WHOLE)
    proposal = proposer(model).propose(brief(Operator.MUTATE))
    assert proposal.kernel == Kernel.from_source(CHILD)
    assert len(model.requests) == 3
    assert proposal.prompt_tokens == 300
    again = model.requests[2]
    assert [turn["role"] for turn in again.messages] == ["system", "user", "assistant", "user"]
    assert again.messages[2]["content"] == BROKEN
    assert "block 1: its SEARCH part is not in the file" in again.last
    assert "whole new file" in again.last


def test_there_is_only_one_follow_up(model: ScriptedModel) -> None:
    script(model, IDEAS, BROKEN, BROKEN)
    proposal = proposer(model).propose(brief(Operator.MUTATE))
    assert proposal.state is BirthState.NO_CODE
    assert proposal.kernel is None
    assert proposal.idea is not None
    assert proposal.note.count("block 1: its SEARCH part is not in the file") == 2
    assert "\n" not in proposal.note
    assert len(model.requests) == 3


def test_prose_only_is_no_code(model: ScriptedModel) -> None:
    script(model, IDEAS, "I would use larger tiles.", "As I said: larger tiles.")
    proposal = proposer(model).propose(brief(Operator.REWRITE))
    assert proposal.state is BirthState.NO_CODE
    assert proposal.note == "there is no code in the answer. Asked again: there is no code in the answer."


def test_an_answer_that_is_not_python_is_no_code(model: ScriptedModel) -> None:
    script(model, IDEAS, "```python\nclass ModelNew(\n```", "```python\nclass Model: pass\n```")
    proposal = proposer(model).propose(brief(Operator.REWRITE))
    assert proposal.state is BirthState.NO_CODE
    assert "not Python: line 1" in proposal.note
    assert "class ModelNew" in proposal.note


def test_a_truncated_answer_gets_no_follow_up(model: ScriptedModel) -> None:
    """The whole file would be even longer."""
    model.say(IDEAS)
    model.say(f"```python\n{PARENT}", finish="length")
    proposal = proposer(model, max_tokens=512).propose(brief(Operator.REWRITE))
    assert proposal.state is BirthState.NO_CODE
    assert proposal.note == "the answer was cut short at 512 tokens; raise llm.max_tokens."
    assert len(model.requests) == 2


def test_an_empty_answer_is_no_code(model: ScriptedModel) -> None:
    model.say(IDEAS)
    model.say(None)
    proposal = proposer(model).propose(brief(Operator.MUTATE))
    assert (proposal.state, proposal.note) == (BirthState.NO_CODE, "the answer was empty.")
    assert len(model.requests) == 2


def test_a_refused_prompt_is_no_code(model: ScriptedModel) -> None:
    model.say(IDEAS)
    model.fail(Reply(text="", model="m-1", refusal="maximum context length is 4096 tokens"))
    proposal = proposer(model).propose(brief(Operator.MUTATE))
    assert proposal.state is BirthState.NO_CODE
    assert "maximum context length" in proposal.note
    assert "maximum context length" in proposal.reply


def test_reasoning_is_not_part_of_the_answer(model: ScriptedModel) -> None:
    script(
        model,
        f"<think>perhaps {IDEAS.replace('Larger', 'Smaller')}</think>{IDEAS}",
        f"<think>{BROKEN}</think>{DIFF}",
    )
    proposal = proposer(model).propose(brief(Operator.MUTATE))
    assert proposal.kernel == Kernel.from_source(CHILD)
    assert proposal.idea is not None
    assert proposal.idea.title == "Larger tiles"
    assert "perhaps" in proposal.reply, "the record keeps everything"


@pytest.mark.parametrize("answer", ["Use larger tiles.", "", "[]"])
def test_without_ideas_of_its_own_the_model_gets_one_from_the_playbook(model: ScriptedModel, answer: str) -> None:
    script(model, answer, DIFF)
    proposal = proposer(model).propose(brief(Operator.MUTATE))
    assert proposal.state is BirthState.CREATED
    assert proposal.idea is not None
    assert proposal.idea.proposed_by == "playbook"
    assert proposal.idea.title in model.requests[1].last
    entry = next(entry for entry in load_playbook().ideas if entry.title == proposal.idea.title)
    assert "cpu" in entry.devices
    assert "cpp" in entry.backends


def test_a_kernel_that_the_run_knows_is_a_duplicate(model: ScriptedModel) -> None:
    script(model, IDEAS, DIFF)
    known = Kernel.from_source(CHILD).id
    proposal = proposer(model).propose(brief(Operator.MUTATE, known=lambda kernel: kernel == known))
    assert proposal.state is BirthState.DUPLICATE
    assert proposal.kernel is not None


def test_an_endpoint_that_fails_stops_the_search(model: ScriptedModel) -> None:
    model.say(IDEAS)
    model.fail(ProposerError("the key is refused"))
    with pytest.raises(ProposerError, match="the key is refused"):
        proposer(model).propose(brief(Operator.MUTATE))


@pytest.mark.parametrize("operator", [Operator.TUNE, Operator.SEED])
def test_operators_that_need_no_model_are_refused(model: ScriptedModel, operator: Operator) -> None:
    with pytest.raises(ProposerError, match="another proposer"):
        proposer(model).propose(brief(operator))
    assert model.requests == []


# ---- what is kept -------------------------------------------------------------------------------------------------


def test_the_record_holds_both_stages(model: ScriptedModel) -> None:
    script(model, IDEAS, BROKEN, WHOLE)
    proposal = proposer(model).propose(brief(Operator.MUTATE))
    headings = re.findall(r"^===== .* =====$", proposal.prompt + proposal.reply, re.MULTILINE)
    assert headings == [
        *(f"===== request {n}: {stage} =====" for n, stage in enumerate(["ideas", "code", "code, asked again"], 1)),
        *(f"===== answer {n}: {stage} =====" for n, stage in enumerate(["ideas", "code", "code, asked again"], 1)),
    ]
    assert proposal.prompt.count("[system]") == 1
    assert BROKEN.strip() in proposal.reply


def test_the_same_brief_and_answers_give_the_same_child(model: ScriptedModel) -> None:
    ideas = json.dumps([{"title": f"Idea {n}", "mechanism": "m", "technique": "other"} for n in range(4)])
    script(model, ideas, DIFF, ideas, DIFF)
    writer = proposer(model)
    assert writer.propose(brief(Operator.MUTATE)) == writer.propose(brief(Operator.MUTATE))
