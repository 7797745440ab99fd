"""What prompts show of the problem, the parents, the run and the device, and what they never show."""

import ast
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kbevolve.archive.records import Backend, Idea, Kernel, Operator, ProblemCard, Verdict
from kbevolve.evolve.state.transfer import TransferredIdea, TransferredKernel, TransferredKnowledge
from kbevolve.islands.policy import FREE, Policy
from kbevolve.islands.stagnation import Stage
from tests.evolve.doubles import ScriptedModel, tried
from tests.evolve.proposers.codegen.briefs import (
    DIFF,
    IDEAS,
    OTHER,
    PARENT,
    REFERENCE,
    TRITON,
    WHOLE,
    brief,
    failure,
    member,
    proposer,
    script,
)


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
    assert "already moves its bytes at 93 % of the bandwidth" in asked
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


@pytest.mark.parametrize(("source", "noted"), [(TRITON, False), (TRITON + "# warpgroup_mma\n", True)])
def test_a_memory_bound_task_gets_notes_on_matrix_units_if_the_parent_works_with_them(
    model: ScriptedModel, source: str, noted: bool
) -> None:
    card = ProblemCard(problem="p", device="d", precision="fp32", memory_ms=2.5, roofline_ms={"fp32": 2.5})
    script(model, IDEAS, "none", "none")
    device = "NVIDIA H200, sm_90, Triton 3.6.0"
    proposer(model).propose(brief(Operator.MUTATE, source, card=card, device_type="cuda", device=device))
    code = model.requests[1].last
    assert ("Gluon on sm_90" in code) == noted
    assert "as accurate as fp32 that works on this architecture" not in code


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
