"""The hand-written C++ seeds: right answers at every setting tried, shapes nothing divides."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import pytest

import kbevolve.configs
from kbevolve.evolve.proposers.tuning.tunables import declared, with_values
from tests.imported import imported

torch = pytest.importorskip("torch")
SEEDS = Path(kbevolve.configs.__file__).parent / "seeds"
NAMES = ("L1/matmul", "L1/softmax", "L1/layernorm", "L1/gelu", "L1/sum_reduce", "L2/gemm_bias_relu")
#: The judge's bound for fp32: error against fp64 over the spread of the answer.
TOLERANCE = 5e-5

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")


def source_of(name: str) -> str:
    return (SEEDS / name / "cpp.py").read_text()


@pytest.fixture(scope="module", autouse=True)
def extensions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One folder of builds for the whole module: torch builds a name once in a process, wherever it is asked to."""
    folder = tmp_path_factory.mktemp("extensions")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_EXTENSIONS_DIR", str(folder))
        yield folder


#: Name -> [(constructor arguments, input shapes)], none of which divides by a vector, a tile or a block.
SHAPES: dict[str, list[tuple[tuple[Any, ...], list[tuple[int, ...]]]]] = {
    "L1/matmul": [
        ((), [(37, 53), (53, 71)]),
        ((), [(1, 1), (1, 1)]),
        ((), [(131, 301), (301, 5)]),
        ((), [(5, 65), (65, 401)]),
    ],
    "L1/softmax": [((), [(7, 13)]), ((), [(5, 1031)]), ((), [(1, 2)])],
    "L1/layernorm": [(((3, 5, 7),), [(3, 3, 5, 7)]), (((2, 33, 65),), [(2, 2, 33, 65)]), (((13,),), [(4, 5, 13)])],
    "L1/gelu": [((), [(7, 13)]), ((), [(3, 5, 401)]), ((), [(2,)])],
    "L1/sum_reduce": [((1,), [(3, 7, 13)]), ((1,), [(2, 131, 301)]), ((0,), [(9, 4, 5)]), ((-1,), [(3, 5, 301)])],
    "L2/gemm_bias_relu": [((53, 71), [(37, 53)]), ((1, 2), [(3, 1)]), ((301, 131), [(5, 301)]), ((16, 5), [(131, 16)])],
}


def reference(name: str, model: Any, inputs: list[Any]) -> Any:
    """The answer in fp64, with the weights of `model`."""
    wide = [x.double() for x in inputs]
    answers: dict[str, Callable[[], Any]] = {
        "L1/matmul": lambda: wide[0] @ wide[1],
        "L1/softmax": lambda: torch.softmax(wide[0], 1),
        "L1/layernorm": lambda: torch.nn.functional.layer_norm(
            wide[0], model.norm.weight.shape, model.norm.weight.double(), model.norm.bias.double()
        ),
        "L1/gelu": lambda: torch.nn.functional.gelu(wide[0]),
        "L1/sum_reduce": lambda: wide[0].sum(model.dim, keepdim=True),
        "L2/gemm_bias_relu": lambda: torch.relu(wide[0] @ model.gemm.weight.double().T + model.bias.double()),
    }
    return answers[name]()


def assert_right(name: str, module: ModuleType) -> None:
    for seed, (arguments, shapes) in enumerate(SHAPES[name]):
        torch.manual_seed(seed)
        model = module.ModelNew(*arguments).requires_grad_(False)
        for parameter in model.parameters():  # LayerNorm starts with ones and zeros, which would hide a lost weight
            parameter.copy_(torch.randn_like(parameter))
        inputs = [torch.randn(shape) for shape in shapes]
        before = [x.clone() for x in inputs]
        truth, answer = reference(name, model, inputs), model(*inputs)
        assert answer.dtype == torch.float32
        assert answer.shape == truth.shape
        assert all(torch.equal(x, kept) for x, kept in zip(inputs, before, strict=True))
        error = (answer.double() - truth).norm() / truth.norm().clamp_min(1e-30)
        assert error < TOLERANCE, f"{name} {shapes}: error {error:.1e}"


@needs_compiler
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "L1/sum_reduce" else pytest.mark.slow) for name in NAMES]
)
def test_declared_and_random_settings_are_right(name: str, tmp_path: Path, extensions: Path) -> None:
    source, rng = source_of(name), Random(name)
    tunables = declared(source)
    # As declared, three at random, and the last value of each: everything switched on.
    settings: list[dict[str, str]] = [{}]
    settings += [{one.name: rng.choice(one.choices) for one in tunables} for _ in range(3)]
    settings.append({one.name: one.choices[-1] for one in tunables})
    for index, values in enumerate(settings):
        try:
            assert_right(name, imported(with_values(source, values), tmp_path, f"setting{index}"))
        except Exception as error:
            error.add_note(f"{name}: {values}")
            raise
    builds = {folder.name for folder in extensions.glob(f"{name.split('/')[1]}_*")}
    assert len(builds) >= len(settings), "two settings shared a build"


@needs_compiler
def test_matmul_takes_strided_and_empty_inputs_and_refuses_doubles(tmp_path: Path) -> None:
    matmul = imported(source_of("L1/matmul"), tmp_path, "matmul").ModelNew()
    left, right = torch.randn(7, 5).T, torch.randn(3, 14)[:, ::2].T
    assert torch.allclose(matmul(left, right), left @ right, atol=1e-5)
    assert torch.equal(matmul(torch.empty(2, 0), torch.empty(0, 3)), torch.zeros(2, 3))
    with pytest.raises(TypeError, match="fp32"):
        matmul(left.double(), right.double())


@needs_compiler
@pytest.mark.parametrize(
    "values",
    [
        {},
        {"EXP": "poly"},
        {"EXP": "poly", "LANES": "8", "STREAM": "1"},
        {"EXP": "poly", "LANES": "16", "PASSES": "online", "UNROLL": "2"},
    ],
)
def test_softmax_of_infinities_and_nan_is_torchs(values: dict[str, str], tmp_path: Path) -> None:
    softmax = imported(with_values(source_of("L1/softmax"), values), tmp_path, "softmax").ModelNew()
    infinity, nan = float("inf"), float("nan")
    for row in (
        [-infinity, 0.0, 200.0, -300.0, 199.0],
        [-infinity] * 5,
        [0.0, infinity, 1.0],
        [0.0, nan, 1.0, 2.0, 3.0],
        [88.0, -1e30, 88.5],
    ):
        x = torch.tensor([row])
        assert torch.allclose(softmax(x), torch.softmax(x, 1), equal_nan=True), row


@needs_compiler
@pytest.mark.parametrize("values", [{}, {"PHI": "horner"}, {"PHI": "estrin", "LANES": "8"}])
def test_gelu_far_from_zero_is_torchs(values: dict[str, str], tmp_path: Path) -> None:
    gelu = imported(with_values(source_of("L1/gelu"), values), tmp_path, "gelu").ModelNew()
    far = torch.tensor([-1e30, -7.0, -4.99, -0.0, 4.99, 7.0, 1e30, float("nan")])
    assert torch.allclose(gelu(far), torch.nn.functional.gelu(far), atol=2e-6, equal_nan=True)
