"""Files put together from C++ templates: right answers at every setting; what is left to torch, what is refused."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kbevolve.archive.records import Backend, Kernel
from kbevolve.configs.reference import names_of
from kbevolve.evaluators.graph.regions import cut
from kbevolve.evolve.proposers.seeds.cpp.assembly import assembled
from kbevolve.evolve.proposers.seeds.cpp.functions import NotCoveredError
from kbevolve.evolve.proposers.tuning.constraints import fits, idle
from kbevolve.evolve.proposers.tuning.tunables import declared, values_of, with_values
from tests.evolve.proposers.seeds.cpp.models import MODELS, problem_text
from tests.imported import imported

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")
#: The judge's bound for fp32: error against fp64 over the spread of the answer.
TOLERANCE = 5e-5
#: Those that run by default: each kind of loop once.
QUICK = ("activations", "softmax of rows", "group norm", "sum of columns", "max pool", "linear", "depthwise")
QUICK += ("transposed convolution, step 2", "two results, one by torch")


@pytest.fixture(scope="module", autouse=True)
def extensions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One folder of builds for the whole module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path_factory.mktemp("extensions")))
        yield


def put_together(text: str) -> str:
    from kbevolve.evaluators.graph.tracer import trace_source

    return assembled(cut(trace_source(text, torch.float32)), text)


def assert_right(text: str, source: str, folder: Path, name: str) -> None:
    """Compare a kernel with the reference in fp64, and with its form in fp32."""
    names = names_of(text)
    torch.manual_seed(0)
    model = names["Model"]().eval().requires_grad_(False)
    for tensor in model.parameters():  # norms start with ones and zeros, which would hide a lost weight
        tensor.copy_(torch.randn_like(tensor))
    kernel = imported(source, folder, name).ModelNew().eval()
    kernel.load_state_dict(model.state_dict())
    inputs = names["get_inputs"]()
    expected, got = model(*inputs), kernel(*inputs)
    truth = model.double()(*(x.double() for x in inputs))
    tuples: list[Any] = [one if isinstance(one, tuple) else (one,) for one in (expected, got, truth)]
    for theirs, ours, exact in zip(*tuples, strict=True):
        assert (ours.shape, ours.stride(), ours.dtype) == (theirs.shape, theirs.stride(), torch.float32)
        error = (ours.double() - exact).norm() / exact.norm()
        assert error < TOLERANCE, (
            f"error {error:.1e}; torch's own {(theirs.double() - exact).norm() / exact.norm():.1e}"
        )


def settings_of(source: str) -> list[dict[str, str]]:
    """As declared, by the template at the last values and two random ones, by the library."""
    tunables, rng = declared(source), Random(0)
    ours = {one.name: "1" for one in tunables if one.name.startswith("PRODUCT")}
    settings: list[dict[str, str]] = [{}, {one.name: one.choices[-1] for one in tunables} | ours]
    settings.append(dict.fromkeys(ours, "0"))
    while len(settings) < 5:
        drawn = {one.name: rng.choice(one.choices) for one in tunables} | ours
        if fits(source, {**values_of(source), **drawn}):
            settings.append(drawn)
    return settings


@pytest.mark.parametrize("name", [pytest.param(one, marks=() if one in QUICK else pytest.mark.slow) for one in MODELS])
def test_the_file_is_right(name: str, tmp_path: Path) -> None:
    text = problem_text(*MODELS[name])
    source = with_values(put_together(text), {f"PRODUCT_{number}": "1" for number in range(6)})
    assert Kernel.from_source(source).backend is Backend.CPP
    assert_right(text, source, tmp_path, "declared")


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_every_setting_is_right(name: str, tmp_path: Path) -> None:
    text = problem_text(*MODELS[name])
    source = put_together(text)
    for number, values in enumerate(settings_of(source)):
        try:
            assert_right(text, with_values(source, values), tmp_path, f"setting{number}")
        except Exception as error:
            error.add_note(f"{name}: {values}")
            raise


def test_what_torch_computes_is_called_by_name() -> None:
    source = put_together(problem_text(*MODELS["two results, one by torch"]))
    assert "flip = torch.ops.aten.flip.default(self=relu, dims=[1])" in source
    assert source.count(" = launch(") == 3


def test_a_product_can_be_the_librarys_and_then_its_tunables_are_idle() -> None:
    source = put_together(problem_text(*MODELS["linear"]))
    assert '    mul = launch("linear_kernel"' in source
    assert "linear = torch.ops.aten.linear.default(" in source
    assert values_of(source)["MR"] == "12", "185 rows are 16 tiles of 12"
    ours, theirs = (idle(source, {**values_of(source), "PRODUCT_0": one}) for one in "10")
    assert ours == {"KEEP", "COLUMNS"} & values_of(source).keys()
    assert {"PACK", "MR", "NR", "BLOCK_M", "BLOCK_N", "BLOCK_K"} <= theirs


def test_layers_that_repeat_share_a_function() -> None:
    text = problem_text(
        "self.s(x)", "torch.randn(30, 50)", "self.s = nn.Sequential(*[nn.Linear(50, 50) for _ in range(9)])"
    )
    source = put_together(text)
    assert source.count('extern "C" void') == 2, "the last one writes the model's result, perhaps past the caches"
    assert source.count('launch("linear_kernel"') == 8
    assert "PRODUCT_5" in source
    assert "PRODUCT_6" not in source


def test_two_libraries_of_one_process_share_no_constants(tmp_path: Path) -> None:
    """Static members of a class are unique in a process, whatever library they are in, but for unnamed namespaces."""
    for number, padding in enumerate((0, 1)):
        text = problem_text("self.c(x)", "torch.randn(2, 5, 9, 9)", f"self.c = nn.Conv2d(5, 9, 3, padding={padding})")
        source = with_values(put_together(text), {"PRODUCT_0": "1"})
        assert_right(text, source, tmp_path, f"padding{number}")


@pytest.mark.parametrize(
    ("forward", "inputs", "constructor", "why"),
    [
        ("torch.flip(x, (1,))", "torch.randn(5, 7)", "", "no region has a template"),
        ("torch.cumprod(x, 0)", "torch.randn(5, 7)", "", "no region has a template"),
        ("x.double() * 2", "torch.randn(5, 7)", "", "no region has a template"),
        ("self.n.add_(1) + x", "torch.randn(5)", "self.register_buffer('n', torch.zeros(5))", "changes its state"),
    ],
)
def test_what_no_template_computes_has_no_file(forward: str, inputs: str, constructor: str, why: str) -> None:
    with pytest.raises(NotCoveredError, match=why):
        put_together(problem_text(forward, inputs, constructor))


def test_other_shapes_are_refused_and_other_strides_are_copied(tmp_path: Path) -> None:
    text = problem_text("torch.relu(x) + 1", "torch.randn(5, 7)")
    kernel = imported(put_together(text), tmp_path, "guards").ModelNew()
    turned = torch.randn(7, 5).T
    assert torch.equal(kernel(turned), torch.relu(turned) + 1)
    for wrong in (torch.randn(5, 8), torch.randn(5, 7).double()):
        with pytest.raises(TypeError, match=r"_kernel takes fp32 of \(5, 7\) on the CPU"):
            kernel(wrong)
