"""What a prompt says of the device, of the problem's bounds and of the rule, and that the judge's numbers are in it."""

import ast
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kbevolve.archive.parts import grouped
from kbevolve.archive.records import Evaluation, Idea, Kernel, Operator, ProblemCard, Verdict
from kbevolve.configs.problem import parse_problem
from kbevolve.evaluators.correctness import rule
from kbevolve.evolve.proposers.codegen import prompts
from kbevolve.evolve.proposers.codegen.facts import card_lines, device_lines
from kbevolve.evolve.proposers.tuning.tunables import declared, with_values
from kbevolve.islands.island import Member
from tests.evolve.doubles import brief_of

PROBLEM = parse_problem(
    "class Model: ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n", name="p", path=Path("p.py")
)
H200 = "NVIDIA H200, 132 SMs, 150 GB, sm_90, CUDA 13.0, torch 2.11.0+cu130, Triton 3.6.0"
#: Its times follow from the rates; the rates themselves are invented.
CARD = ProblemCard(
    problem="p", device="d", precision="fp32", input_bytes=201_326_592, output_bytes=201_326_592,
    flops=412_000_000_000, required_flops=388_000_000_000, eager_ms=12.0, memory_ms=0.094,
    peaks={"copy": 4.4e12, "fp64": 60e12, "fp32": 50e12, "tf32": 400e12, "fp16": 750e12, "bf16": 800e12},
    resources={"L2": 50 << 20, "shared": 227 << 10, "SM shared": 228 << 10, "registers": 65536},
    roofline_ms={"fp32": 1.455}, flags={"reducible": "48 % of an operand of a matrix product are blocks of zeros"},
)  # fmt: skip
IDEA = Idea(title="t", mechanism="m", technique="fusion")


def implemented(source: str, *, device: str = H200, card: ProblemCard = CARD, **facts: Any) -> str:
    kernel = Kernel.from_source(source)
    evaluation = grouped(
        Evaluation, kernel=kernel.id, problem="p", device="d", precision="fp32", verdict=Verdict.CORRECT, message="",
        **{"speedup": 1.5} | facts,
    )  # fmt: skip
    parent = Member(kernel=kernel, evaluation=evaluation, niche="m0")
    brief = brief_of(Operator.MUTATE, parent, problem=PROBLEM, device_type="cuda", device=device, card=card)
    return prompts.implement(brief, IDEA)


TRITON = "import triton\n\n\n@triton.jit\ndef k(): pass\n\n\nclass ModelNew:\n    pass\n"
CUDA = 'import torch\nSOURCE = "__global__ void f() {}"\nclass ModelNew(torch.nn.Module): ...\n'


def test_every_bound_states_what_it_assumes() -> None:
    assert card_lines(CARD) == [
        "It must read 201 MB and write 201 MB (94.0 µs at the measured bandwidth), and computes 412 GFLOP in products, "
        "of which 24.0 GFLOP can be saved: at the measured peaks 7.76 ms in fp32, 2.91 ms in 3 TF32, 1.55 ms in 3 "
        "fp16, 2.91 ms in 6 bf16.",
        "So arithmetic bounds it, at 1.55 ms if each byte moves once and nothing is padded; eager PyTorch takes "
        "12.0 ms.",
        "Reducible: 48 % of an operand of a matrix product are blocks of zeros.",
    ]


def test_a_cpu_and_other_precisions_have_the_rates_that_apply() -> None:
    cpu = replace(CARD, peaks={"copy": 2e10, "fp64": 6e10, "fp32": 1e11, "bf16": 2e10}, resources={"L2": 1 << 19})
    assert "peaks 3.88 s in fp32." in card_lines(cpu)[0]
    assert device_lines(cpu) == [
        "Caches: L2 512 KiB.",
        "Measured: a copy moves 20.0 GB/s; library products, TFLOP/s: fp32 0.100.",
    ]
    assert "peaks 485 µs in bf16." in card_lines(replace(CARD, precision="bf16", roofline_ms={"half": 0.485}))[0]


def test_the_device_is_described_by_its_limits_and_measured_rates() -> None:
    assert device_lines(CARD) == [
        "A block may have 227 KiB of the 228 KiB of an SM as shared memory, a thread 255 of an SM's 65,536 registers; "
        "caches: L2 50 MiB.",
        "Measured: a copy moves 4400 GB/s; library products, TFLOP/s: fp32 50.0, TF32 400, fp16 750, bf16 800.",
    ]
    assert device_lines(None) == device_lines(replace(CARD, peaks={}, resources={})) == []


@pytest.mark.parametrize("precision", ["fp32", "tf32", "fp16", "bf16"])
def test_the_rule_is_stated_with_the_judges_own_numbers(precision: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    brief = brief_of(Operator.REWRITE, problem=PROBLEM, device_type="cuda", device=H200)
    limit = {"fp32": "5e-5", "tf32": "2e-3", "fp16": "2e-2", "bf16": "2e-2"}[precision]
    assert f"at most {limit}, or 4 times" in prompts.system(brief, precision)
    monkeypatch.setattr(rule, "SLACK", 7.0)
    monkeypatch.setattr(rule, "ENLARGED_EXPONENT", 9)
    said = prompts.system(brief, precision)
    assert "or 7 times the reference's own E" in said
    assert "times 512, and at a root mean square of 2^-16" in said


def test_what_is_allowed_of_libraries_follows_the_setting() -> None:
    brief = brief_of(Operator.REWRITE, problem=PROBLEM, device_type="cuda", device=H200)
    said = [prompts.system(brief, "fp32", which) for which in ("full", "partial", "none")]
    assert ["may stay" in one for one in said] == [True, False, False]
    assert ["no product, convolution" in one for one in said] == [False, True, False]
    assert ["No library computes" in one for one in said] == [False, False, True]


@pytest.mark.parametrize(
    ("facts", "freed"),
    [({}, False), ({"tags": ("library-heavy",)}, True), ({"speedup": 1.01}, True), ({"tags": ("half-types",)}, False)],
)
def test_only_an_edit_of_a_good_parent_is_held_to_its_idea(facts: dict[str, Any], freed: bool) -> None:
    text = implemented(TRITON, **facts)
    assert ("with all that belongs to it" in text) is freed
    assert ("and nothing beyond it" in text) is not freed


def test_notes_fit_the_device_and_the_language() -> None:
    triton, cuda = implemented(TRITON), implemented(CUDA)
    assert "truncates its fp32 accumulator" in triton
    assert "TensorDescriptor" in triton
    assert "C7513" not in triton
    assert "constexpr int unroll" not in triton
    assert "truncates its fp32 accumulator" in cuda
    assert "C7513" in cuda
    assert "constexpr int unroll" in cuda
    assert "64 and one of 32" not in cuda
    older = implemented(TRITON, device="NVIDIA A100, sm_80, Triton 3.1.0")
    assert "truncates" not in older
    assert "TensorDescriptor" not in older


LIBRARY = {"tags": ("library-heavy",)}


@pytest.mark.parametrize(
    ("source", "facts", "card", "shown"),
    [
        (TRITON, LIBRARY, CARD, True),
        (CUDA, LIBRARY, CARD, True),
        (CUDA, {}, CARD, False),  # a good parent is example enough
        (CUDA, LIBRARY, replace(CARD, roofline_ms={"fp32": 0.094}), False),
        (CUDA, LIBRARY, replace(CARD, precision="bf16", roofline_ms={"half": 1.0}), False),
    ],
)
def test_a_verified_product_is_shown_where_it_belongs(
    source: str, facts: dict[str, Any], card: ProblemCard, shown: bool
) -> None:
    text = implemented(source, card=card, **facts)
    assert ("A product as accurate as fp32" in text) is shown
    assert ("setmaxnreg.inc" in text) is (shown and source == CUDA)
    assert ("gl.warp_specialize" in text) is (shown and source == TRITON)
    assert "{%" not in text.replace("{%0", "").replace("{%2", ""), "no mark of the template is left"
    other = implemented(source, device="NVIDIA A100, sm_80, Triton 3.1.0", card=card, **facts)
    assert "A product as accurate as fp32" not in other


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")
def test_the_cuda_product_compiles_without_serialised_wgmma(tmp_path: Path) -> None:
    source = prompts.skeleton_text("cuda")
    for stages in ("2", "3"):
        text = with_values(source, {"STAGES": stages}).partition('SOURCE = r"""')[2].partition('"""')[0]
        (tmp_path / "product.cu").write_text(text)
        command = ["nvcc", "-O3", "-gencode=arch=compute_90a,code=sm_90a", "-cubin", "-Xptxas=-v", "product.cu"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "C7513" not in done.stderr
        assert "0 bytes spill stores" in done.stderr


def test_every_skeleton_is_python() -> None:
    for name in ("cuda", "triton", "gluon"):
        tree = ast.parse(prompts.skeleton_text(name))
        assert "product" in [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
        assert declared(prompts.skeleton_text(name))
