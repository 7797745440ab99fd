"""The LLM proposer against a scripted model; the number of requests is part of every case."""

import ast
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kbevolve.archive.parts import grouped
from kbevolve.archive.records import Backend, BirthState, Evaluation, Idea, Kernel, Operator, ProblemCard, Verdict
from kbevolve.configs.errors import ProposerError
from kbevolve.configs.playbook import load_playbook
from kbevolve.configs.problem import parse_problem
from kbevolve.configs.settings import LLMSettings
from kbevolve.evolve.llm.client import Reply
from kbevolve.evolve.proposers.base import Brief
from kbevolve.evolve.proposers.codegen.proposer import LLMProposer
from kbevolve.evolve.state.attempts import Failure
from kbevolve.evolve.state.transfer import TransferredIdea, TransferredKernel, TransferredKnowledge
from kbevolve.islands.island import Member
from kbevolve.islands.policy import FREE, Policy
from kbevolve.islands.stagnation import Stage
from tests.evolve.doubles import ScriptedModel, brief_of, tried

PROBLEM = parse_problem(
    '''"""Square matrix product."""

import torch

N = 4096

CPU_SIZES = {"N": 512}


class Model(torch.nn.Module):
    def forward(self, A, B):
        return A @ B


def get_inputs():
    return [torch.randn(N, N), torch.randn(N, N)]


def get_init_inputs():
    return []
''',
    name="L1/matmul",
    path=Path("matmul.py"),
)

PARENT = '''import torch

SOURCE = r"""
#define TILE 8  // tune: 4, 8, 16
extern "C" void matmul(const float* A, const float* B, float* C, long n) {
  for (long i = 0; i < n; i++) {}
}
"""


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return A
'''
CHILD = PARENT.replace("i++", "i += TILE")
OTHER = PARENT.replace("TILE", "WIDTH")
REFERENCE = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, A, B):\n        return A @ B\n"
TRITON = "import triton\n\n\n@triton.jit\ndef k(): pass\n\n\nclass ModelNew:\n    pass\n"

IDEAS = json.dumps(
    [{"title": "Larger tiles", "mechanism": "Fewer loads.", "technique": "block tiling", "expected_gain": "1.5x"}]
)
DIFF = """I step by tiles.

<<<<<<< SEARCH
  for (long i = 0; i < n; i++) {}
=======
  for (long i = 0; i < n; i += TILE) {}
>>>>>>> REPLACE
"""
BROKEN = DIFF.replace("i < n; i++", "i < m; i++")
WHOLE = f"```python\n{CHILD}```"


def member(source: str, speedup: float = 1.83) -> Member:
    kernel = Kernel.from_source(source)
    return Member(kernel=kernel, evaluation=evaluation(kernel, Verdict.CORRECT, speedup=speedup), niche="m0")


def evaluation(kernel: Kernel, verdict: Verdict, *, message: str = "", speedup: float | None = None) -> Evaluation:
    return grouped(
        Evaluation,
        kernel=kernel.id,
        problem=PROBLEM.id,
        device="d",
        precision="fp32",
        verdict=verdict,
        message=message,
        speedup=speedup,
        speedup_low=speedup and speedup - 0.03,
        speedup_high=speedup and speedup + 0.03,
        time_ms=speedup and 2.675,
    )


def failure(source: str, verdict: Verdict, message: str, idea: Idea | None = None) -> Failure:
    kernel = Kernel.from_source(source)
    return Failure(kernel=kernel, evaluation=evaluation(kernel, verdict, message=message), idea=idea)


def brief(operator: Operator, *sources: str, **changes: Any) -> Brief:
    task = {"problem": PROBLEM, "device": "Xeon, 2 cores, avx512f"}
    return brief_of(operator, *map(member, sources or (PARENT,)), **{"seed": 7} | task | changes)


@pytest.fixture
def model() -> ScriptedModel:
    return ScriptedModel()


def proposer(model: ScriptedModel, **changes: Any) -> LLMProposer:
    return LLMProposer(model, LLMSettings.model_validate({"model": "m", **changes}))


def script(model: ScriptedModel, *answers: str) -> None:
    for answer in answers:
        model.say(answer)


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


# ---- what is shown and what is kept ------------------------------------------------------------------------------


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


def test_the_prompt_shows_measurements_tried_ideas_and_failures(model: ScriptedModel) -> None:
    unroll = Idea(title="Unroll", mechanism="m", technique="instruction-parallelism")
    memory = tried((unroll, 1.25), (Idea(title="Pack", mechanism="m", technique="data-layout"), None))
    failed = failure(OTHER, Verdict.WRONG, "first wrong element at (0, 512)\nmore", unroll)
    script(model, IDEAS, DIFF)
    proposer(model).propose(
        brief(
            Operator.MUTATE,
            memory=memory,
            failures=(failed, failed),
            inspirations=(member(REFERENCE), member(OTHER, 1.5)),
        )
    )
    ideas, code = (request.last for request in model.requests)
    assert "1.83 times as fast as eager PyTorch, 95 % interval 1.80 to 1.86; 2.675 ms a call" in ideas
    assert "Unroll (instruction-parallelism): 1.25 times its parent's speed" in ideas
    assert "Pack (data-layout): no working kernel" in ideas
    assert "- tried 2x: wrong: first wrong element at (0, 512) (idea: Unroll)" in code
    assert OTHER.strip() in code
    assert "1.50 times" in code
    assert "N = 512" in code, "the sizes of the device at hand"


@pytest.mark.parametrize(
    ("speedup", "characters", "shown"),
    [(1.5, 7000, True), (1.5, 20_000, False), (4.0, 20_000, True), (4.0, 40_000, False)],
)
def test_a_long_kernel_is_shown_if_it_is_far_ahead(
    model: ScriptedModel, speedup: float, characters: int, shown: bool
) -> None:
    long = OTHER + "#" * (characters - len(OTHER))
    script(model, IDEAS, DIFF)
    proposer(model).propose(brief(Operator.MUTATE, inspirations=(member(long, speedup),)))
    assert (long in model.requests[1].last) is shown


def test_transferred_knowledge_names_its_problem(model: ScriptedModel) -> None:
    paid = TransferredIdea(problem="L1/softmax", title="Fewer passes", technique="one-pass", gain=1.4)
    transferred = TransferredKernel(
        problem="L1/softmax", kernel="k", speedup=3.0, source="class ModelNew: softmax = 1\n"
    )
    script(model, IDEAS, DIFF)
    proposer(model).propose(
        brief(
            Operator.MUTATE,
            transfer=TransferredKnowledge(ideas=(paid,)),
            transferred_kernel=transferred,
            inspirations=(member(OTHER, 1.5),),
        )
    )
    ideas, code = (request.last for request in model.requests)
    assert "- Fewer passes (one-pass) on L1/softmax: 1.40 times its parent's speed" in ideas
    assert "# A kernel for a similar problem, to learn from (L1/softmax; there 3.00 times" in code
    assert "softmax = 1" in code
    assert OTHER.strip() not in code, "one inspiration is enough"


@pytest.mark.parametrize(
    ("operator", "policy", "languages"),
    [
        (Operator.REWRITE, Policy(name="t", backend=Backend.TRITON), "in Triton."),
        (Operator.REWRITE, FREE, "in CUDA C++ or Triton."),
        (Operator.MUTATE, Policy(name="t", backend=Backend.TRITON), "in C++."),
    ],
)
def test_an_island_writes_new_files_in_its_own_language(
    model: ScriptedModel, operator: Operator, policy: Policy, languages: str
) -> None:
    script(model, IDEAS, WHOLE)
    proposer(model).propose(brief(operator, device_type="cuda", device="NVIDIA H200, sm_90", policy=policy))
    assert languages in model.requests[0].last
    assert ("# CUDA C++ on this GPU" in model.requests[1].last) == (policy == FREE)


def test_filtered_ideas_are_neither_proposed_nor_listed(model: ScriptedModel) -> None:
    card = ProblemCard(problem="p", device="d", precision="fp32", memory_ms=2.5, roofline_ms={"fp32": 2.5})
    script(model, IDEAS, DIFF)
    proposer(model).propose(brief(Operator.MUTATE, card=card, stage=Stage.EXPLORING))
    asked = model.requests[0].last
    assert "already moves its bytes at 93% of the bandwidth" in asked
    assert "\n- cheap-math: " not in asked
    assert "\n- fusion: " in asked
    assert "There has been no improvement for long" in asked


@pytest.mark.parametrize("device_type", ["cpu", "cuda"])
@pytest.mark.parametrize("operator", [Operator.MUTATE, Operator.REWRITE, Operator.CROSS, Operator.REPAIR])
def test_no_prompt_contains_the_judges_secrets(model: ScriptedModel, operator: Operator, device_type: str) -> None:
    script(model, "none", "none", "none")
    failed = failure(PARENT, Verdict.WRONG, "first wrong element at 3")
    asked = brief(operator, PARENT, OTHER, device_type=device_type, device="NVIDIA H200, sm_90", failures=(failed,))
    proposer(model).propose(replace(asked, repair=failed if operator is Operator.REPAIR else None))
    assert model.requests
    for request in model.requests:
        said = "\n".join(turn["content"] for turn in request.messages)
        assert not re.search(r"allclose|\bseed|distribution|\btrials?\b|Undefined|\{\{|\{%", said)
        assert "\n\n\n\n" not in said


@pytest.mark.parametrize(
    ("parent", "shown", "hidden"),
    [
        (REFERENCE, ["CUDA C++ on this GPU", "Triton on this GPU", "sm_{ARCH}"], ["OpenMP"]),
        (TRITON, ["Triton on this GPU"], ["CUDA C++ on this GPU", "A complete file of this kind"]),
    ],
)
def test_advice_fits_the_device_and_the_parent(
    model: ScriptedModel, parent: str, shown: list[str], hidden: list[str]
) -> None:
    script(model, IDEAS, WHOLE)
    proposer(model).propose(brief(Operator.MUTATE, parent, device_type="cuda", device="NVIDIA H200, sm_90"))
    code = model.requests[1].last
    assert [words for words in shown if words not in code] == []
    assert [words for words in hidden if words in code] == []


def skeletons(model: ScriptedModel, device_type: str) -> list[str]:
    script(model, IDEAS, WHOLE)
    proposer(model).propose(brief(Operator.REWRITE, device_type=device_type, device="NVIDIA H200, sm_90"))
    code = model.requests[-1].last
    return re.findall(r"A complete file of this kind, for y = 2x:\n```python\n(.*?)```", code, re.DOTALL)


def test_every_skeleton_is_a_kernel(model: ScriptedModel) -> None:
    found = [*skeletons(model, "cpu"), *skeletons(model, "cuda")]
    assert [Kernel.from_source(source).backend.value for source in found] == ["cpp", "cuda", "triton"]
    for source in found:
        assert "ModelNew" in {node.name for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}
        assert "tune:" in source


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_the_skeleton_for_this_device_works(
    model: ScriptedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    (source,) = skeletons(model, "cpu")
    names: dict[str, Any] = {}
    exec(compile(source, "skeleton.py", "exec"), names)
    x = torch.randn(1000, 33).t()
    assert torch.equal(names["ModelNew"]()(x), 2 * x)
