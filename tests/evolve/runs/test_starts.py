"""The starting kernels of torch.compile in a run: when they are generated, and what is said without them."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kbevolve.archive.store import Archive
from kbevolve.configs.catalog import find_problem
from kbevolve.configs.errors import SettingsError
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evolve.proposers.seeds.seeds import (
    FUSED_WITH_TEMPLATES,
    INDUCTOR,
    RECURRENT,
    REPLAYED,
    TEMPLATES,
    TUNABLE_KERNELS,
    WITH_TEMPLATES,
    StartingKernel,
)
from kbevolve.evolve.proposers.tuning.tunables import declared
from kbevolve.evolve.runs.session import open_run as open_new_run
from kbevolve.evolve.runs.starts import inductor_starts, new_starts
from kbevolve.evolve.state.context import RunContext
from tests.evolve.doubles import context_of, kernel, open_run, settings
from tests.evolve.proposers.seeds.test_tunable_kernels import kernel as kernel_of_inductor


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunContext:
    """A new run; in place of Python, a program that fails with one line."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\ncat\necho no licence >&2\nexit 1\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    archive, chosen = Archive(":memory:"), settings()
    return context_of(archive, open_run(archive, chosen), find_device("cpu"), chosen)


def test_the_run_says_why_torch_compile_gave_no_kernel(context: RunContext) -> None:
    said: list[str] = []
    with inductor_starts(context, [], None, said.append) as generated:
        assert generated is not None
        assert generated() == ()
    assert said == ["no starting kernel from torch.compile: no licence"]


def test_on_a_gpu_the_reference_in_a_graph_takes_its_place(context: RunContext) -> None:
    device = replace(context.device, type="cuda", fingerprint="cuda/NVIDIA X/sm_80/torch 2.13")
    with inductor_starts(replace(context, device=device), [], None, lambda words: None) as generated:
        assert generated is not None
        (start,) = generated()
    assert start.note == REPLAYED
    assert [one.name for one in declared(start.kernel.source)] == ["REPLAYED"]


def test_nothing_is_said_when_the_session_ended_it(context: RunContext) -> None:
    said: list[str] = []
    with inductor_starts(context, [], None, said.append) as generated:
        assert generated is not None
    assert generated() == ()
    assert not said


@pytest.mark.parametrize("case", ["not wanted", "recorded", "recorded in its place", "generation 0 is over"])
def test_it_is_not_generated_without_need(case: str, context: RunContext) -> None:
    starts: list[Any] = []
    if case == "not wanted":
        context = replace(context, settings=context.settings.model_copy(update={"inductor_seed": False}))
    elif case == "recorded":
        starts = [[StartingKernel(kernel=kernel(), note=INDUCTOR)]]
    elif case == "recorded in its place":
        starts = [[StartingKernel(kernel=kernel(), note=REPLAYED)]]
    else:
        context.archive.add_generation_end(context.run.id, 0)
        context = context_of(context.archive, context.run, context.device, context.settings)
    with inductor_starts(context, starts, None, print) as generated:
        assert generated is None


@pytest.mark.parametrize(
    ("architecture", "precision", "notes"),
    [
        ("sm_90", "fp32", [INDUCTOR, WITH_TEMPLATES, FUSED_WITH_TEMPLATES]),
        ("sm_90", "tf32", [INDUCTOR]),
        ("sm_80", "fp32", [INDUCTOR]),
    ],
)
def test_products_are_split_where_the_task_and_the_device_ask_for_it(
    architecture: str, precision: str, notes: list[str], context: RunContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "import torch\nextern_kernels.mm(a, b, out=c)\nclass ModelNew: ...\n"
    fused = source.replace("extern_kernels.mm(a, b, out=c)", "torch.ops.kbevolve.product.default(a, b, None, [], 1)")
    monkeypatch.setattr("kbevolve.evolve.runs.starts.InductorProcess.source", lambda self: source)
    monkeypatch.setattr("kbevolve.evolve.runs.starts.InductorProcess.fused", lambda self: fused)
    device = replace(context.device, type="cuda", fingerprint=f"cuda/NVIDIA X/{architecture}/torch 2.13")
    evaluation = context.settings.evaluation.model_copy(update={"precision": precision})
    chosen = context.settings.model_copy(update={"evaluation": evaluation})
    with inductor_starts(replace(context, device=device, settings=chosen), [], None, print) as generated:
        assert generated is not None
        assert [start.note for start in generated()] == notes


@pytest.mark.parametrize(("products", "offered"), [(False, True), (True, False)])
def test_torch_compiles_own_kernels_are_tuned_where_no_template_is(
    products: bool, offered: bool, context: RunContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    product = "extern_kernels.mm(a, b, out=c)\n" if products else ""
    source = (
        f"import torch\n{kernel_of_inductor('pointwise', {'x': 4096}, ('XBLOCK',))}\n{product}class ModelNew: ...\n"
    )
    monkeypatch.setattr("kbevolve.evolve.runs.starts.InductorProcess.source", lambda self: source)
    device = replace(context.device, type="cuda", fingerprint="cuda/NVIDIA X/sm_90/torch 2.13")
    with inductor_starts(replace(context, device=device), [], None, print) as generated:
        assert generated is not None
        starts = {start.note: start.kernel.source for start in generated()}
    assert (TUNABLE_KERNELS in starts) == offered
    assert (WITH_TEMPLATES in starts) == products
    if offered:
        assert [one.name for one in declared(starts[TUNABLE_KERNELS])] == ["KERNEL_0_XBLOCK", "KERNEL_0_WARPS"]


@pytest.mark.parametrize("convolution", ["", "extern_kernels.convolution(a, b, groups=2, bias=None)\n"])
def test_kernels_that_take_the_place_of_products_are_tuned(
    convolution: str, context: RunContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sum for a product with one column; but a library's convolution keeps the layout that torch.compile gives it."""
    generated = kernel_of_inductor("pointwise", {"x": 4096}, ("XBLOCK",))
    plain = f"import torch\n{generated}\nextern_kernels.mm(a, b, out=c)\n{convolution}class ModelNew: ...\n"
    sums = plain.replace("extern_kernels.mm(a, b, out=c)\n", "sums = None\n")
    monkeypatch.setattr("kbevolve.evolve.runs.starts.InductorProcess.source", lambda self: plain)
    monkeypatch.setattr("kbevolve.evolve.runs.starts.InductorProcess.for_templates", lambda self: sums)
    device = replace(context.device, type="cuda", fingerprint="cuda/NVIDIA X/sm_90/torch 2.13")
    with inductor_starts(replace(context, device=device), [], None, print) as starts:
        assert starts is not None
        found = {start.note: start.kernel.source for start in starts()}
    assert WITH_TEMPLATES not in found
    assert ("sums = None" in found[TUNABLE_KERNELS]) == (not convolution)


REFERENCE = """import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return BODY


def get_inputs():
    return [torch.randn(64, 64)]


def get_init_inputs():
    return []
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "notes", "lines"),
    [
        ("torch.softmax(x, -1) * 2", [INDUCTOR, TEMPLATES], []),
        (
            "x + 1 if x.sum() > 0 else x",
            [],
            [
                "no starting kernel from torch.compile: ",
                "no starting kernel from templates: m.py cannot be traced: its control flow depends on data",
            ],
        ),
        ("torch.flip(x, (1,))", [INDUCTOR], ["no starting kernel from templates: no region has a template"]),
    ],
)
def test_on_a_cpu_templates_give_a_start_or_say_why_not(
    body: str, notes: list[str], lines: list[str], tmp_path: Path
) -> None:
    (tmp_path / "m.py").write_text(REFERENCE.replace("BODY", body))
    archive, chosen, said = Archive(":memory:"), settings(), list[str]()
    begun = context_of(archive, open_run(archive, chosen), find_device("cpu"), chosen)
    problem = replace(find_problem(str(tmp_path / "m.py")), name="m.py")
    with inductor_starts(replace(begun, problem=problem), [], None, said.append) as generated:
        assert generated is not None
        starts = generated()
    assert [start.note for start in starts] == notes
    assert len(said) == len(lines)
    assert all(one.startswith(wanted) for one, wanted in zip(said, lines, strict=True)), said
    if TEMPLATES in notes:
        assert declared(starts[-1].kernel.source), "the search has something to change"


@pytest.mark.parametrize(("capability", "offered"), [("sm_90", True), ("sm_80", False)])
def test_recurrent_layers_have_a_template_on_sm_90(
    capability: str, offered: bool, context: RunContext, tmp_path: Path
) -> None:
    (tmp_path / "m.py").write_text(REFERENCE.replace("BODY", "torch.nn.GRU(64, 64)(x)[0]"))
    device = replace(context.device, type="cuda", fingerprint=f"cuda/NVIDIA X/{capability}/torch 2.13")
    starts = new_starts(replace(context, problem=find_problem(str(tmp_path / "m.py")), device=device))
    assert (RECURRENT in [start.note for start in starts]) == offered


def in_language(context: RunContext, backend: str) -> RunContext:
    search = context.settings.search.model_copy(update={"backend": backend})
    return replace(context, settings=context.settings.model_copy(update={"search": search}))


@pytest.mark.parametrize(
    ("backend", "languages"),
    [("any", {"torch", "triton", "cuda"}), ("triton", {"torch", "triton"}), ("cuda", {"torch", "cuda"})],
)
def test_a_run_in_one_language_starts_in_it(backend: str, languages: set[str], context: RunContext) -> None:
    gpu = replace(context.device, type="cuda")
    starts = new_starts(replace(in_language(context, backend), problem=find_problem("L1/softmax"), device=gpu))
    assert {start.kernel.backend.value for start in starts} == languages


def test_a_generated_start_in_another_language_is_left_out(
    context: RunContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "import triton\n@triton.jit\ndef f(): ...\nclass ModelNew: ...\n"
    monkeypatch.setattr("kbevolve.evolve.runs.starts.InductorProcess.source", lambda self: source)
    for backend, count in (("triton", 1), ("cuda", 0)):
        with inductor_starts(in_language(context, backend), [], None, print) as generated:
            assert generated is not None
            assert len(generated()) == count


def test_a_language_that_the_device_does_not_run_is_an_error(context: RunContext) -> None:
    settings = in_language(context, "triton").settings
    with pytest.raises(SettingsError, match=r"search\.backend=triton: kernels for this cpu device are written in cpp"):
        open_new_run(context.archive, context.problem, context.device, settings)
    assert context.archive.runs.ids() == [context.run.id], "a run was written all the same"
