"""The hand-written Triton and CUDA seeds on a GPU: right answers at every setting tried, shapes nothing divides."""

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch

from kbevolve.configs.seeds import seed_files
from kbevolve.evolve.proposers.tuning.tunables import declared, with_values
from tests.imported import imported

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.slow,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

NAMES = ("L1/matmul", "L1/softmax", "L1/layernorm", "L1/gelu", "L1/sum_reduce", "L2/gemm_bias_relu")
FILES = [(name, path) for name in NAMES for path in seed_files(name, "cuda")]
#: Centred error against fp64; the judge accepts 5e-5, and these small shapes should be well under it.
TOLERANCE = 2e-5
#: Random settings of each seed beside the declared one; a CUDA one takes about 1.5 s to build.
SETTINGS = 4


@pytest.fixture(scope="module", autouse=True)
def extensions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One folder of builds for the whole module: torch builds a name once in a process, wherever it is asked to."""
    folder = tmp_path_factory.mktemp("extensions")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_EXTENSIONS_DIR", str(folder))
        yield folder


def uniform(*shape: int) -> torch.Tensor:
    """Positive numbers: their long sums lose digits that those of normal numbers keep."""
    return torch.rand(shape)


#: Name -> [(constructor arguments, inputs)]: tails of every tile and vector, and entries that do not suit fp16.
CASES: dict[str, Callable[[], list[tuple[tuple[Any, ...], list[torch.Tensor]]]]] = {
    "L1/matmul": lambda: [
        ((), [uniform(257, 2000), uniform(2000, 136)]),
        ((), [torch.randn(130, 77), torch.randn(77, 65)]),
        ((), [1e-6 * torch.randn(256, 512), torch.randn(512, 256)]),
        ((), [1e6 * torch.randn(256, 512), torch.randn(512, 256)]),
        ((), [torch.randn(3, 40), torch.randn(40, 1)]),
    ],
    "L1/softmax": lambda: [
        ((), [3 * torch.randn(37, 2500)]),
        ((), [torch.randn(5, 131)]),
        ((), [40 * torch.randn(3, 70001)]),
    ],
    "L1/layernorm": lambda: [
        (((3, 50, 11),), [5 * torch.randn(7, 3, 50, 11) + 30]),
        (((4, 64, 64),), [10 * torch.randn(33, 4, 64, 64) + 1000]),
        (((1000003,),), [torch.randn(3, 1000003) - 5]),
    ],
    "L1/gelu": lambda: [((), [torch.randn(37, 1291)]), ((), [torch.randn(64, 4096)]), ((), [torch.randn(3)])],
    "L1/sum_reduce": lambda: [
        ((1,), [uniform(3, 700, 1371)]),
        ((1,), [uniform(2, 4096, 512)]),
        ((0,), [torch.randn(301, 7, 40)]),
        ((-1,), [uniform(4, 5, 3000)]),
    ],
    "L2/gemm_bias_relu": lambda: [
        ((512, 136), [torch.randn(130, 512)]),
        ((77, 65), [uniform(257, 77)]),
        ((1024, 256), [1e-6 * torch.randn(64, 1024)]),
        ((1024, 256), [1e6 * torch.randn(64, 1024)]),
    ],
}


def truth(name: str, model: Any, inputs: list[torch.Tensor]) -> torch.Tensor:
    """The answer in fp64, with the weights of `model`."""
    wide = [x.double() for x in inputs]
    answers: dict[str, Callable[[], torch.Tensor]] = {
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


@pytest.mark.parametrize(("name", "path"), FILES, ids=[f"{name}/{path.stem}" for name, path in FILES])
def test_right_at_every_setting_tried(name: str, path: Path, extensions: Path) -> None:
    source = path.read_text()
    rng = Random(f"{name}/{path.stem}")
    settings = [{tunable.name: rng.choice(tunable.choices) for tunable in declared(source)} for _ in range(SETTINGS)]
    for index, values in enumerate([{}, *settings]):
        module_name = f"{name.replace('/', '_')}_{path.stem}_{index}"
        module = imported(with_values(source, values), extensions, module_name)
        with torch.device("cuda"), torch.no_grad():
            torch.manual_seed(index)
            for arguments, inputs in CASES[name]():
                model = module.ModelNew(*arguments)
                for (
                    parameter
                ) in model.parameters():  # LayerNorm starts with ones and zeros: a lost weight would not show
                    parameter.copy_(torch.randn_like(parameter))
                kept = [x.clone() for x in inputs]
                right, answer = truth(name, model, inputs), model(*inputs)
                assert type(answer) is torch.Tensor
                assert answer.dtype == torch.float32
                assert answer.shape == right.shape
                assert all(torch.equal(x, before) for x, before in zip(inputs, kept, strict=True))
                assert torch.equal(answer, model(*inputs)), f"{values}: another answer the second time"
                error = ((answer.double() - right).norm() / (right - right.mean()).norm()).item()
                assert error < TOLERANCE, f"{values} {[tuple(x.shape) for x in inputs]}: error {error:.1e}"
