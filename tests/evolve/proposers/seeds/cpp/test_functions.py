"""The functions of vectors that templates compute with: to the last digits; special arguments as torch takes them."""

import ctypes
import shutil
import subprocess

import pytest

from kbevolve.configs.templates import template

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")
#: C++ -> torch's, and the largest relative error allowed, of results above 1e-30.
FUNCTIONS = {
    "exponential": (torch.exp, 1.2e-7),
    "exponential_less_one": (torch.expm1, 3e-7),
    "logarithm": (torch.log, 3e-7),
    "logarithm_of_one_plus": (torch.log1p, 4e-7),
    "sigmoid": (torch.sigmoid, 2e-7),
    "tangent": (torch.tanh, 3e-7),
    "error_function": (torch.erf, 3e-7),
    "silu": (torch.nn.functional.silu, 3e-7),
    "mish": (torch.nn.functional.mish, 1e-6),
    "root": (torch.sqrt, 1.2e-7),
}
SPECIAL = [0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1e-40, -1e-40, 3e38, -3e38, 88.7, -88.0, -103.5, 20.1]


@pytest.fixture(
    scope="module", params=[16, pytest.param(4, marks=pytest.mark.slow), pytest.param(8, marks=pytest.mark.slow)]
)
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """Every function over an array, for vectors of so many lanes."""
    folder = tmp_path_factory.mktemp("functions")
    text = template("cpp/vectors.h").replace("#define LANES 16", f"#define LANES {request.param}")
    text += template("cpp/functions.h")
    text += "".join(
        f'extern "C" void {name}_of(const float* x, float* y, long n) {{\n'
        f"  sweep(0, n, [&](long j, int lanes) INLINE {{ store(y + j, {name}(load<1>(x + j, lanes)), lanes); }});\n}}\n"
        for name in (*FUNCTIONS, "gelu")
    )
    (folder / "functions.cpp").write_text(text)
    flags = [
        "-O3",
        "-march=native",
        "-fopenmp",
        "-fno-math-errno",
        "-fno-trapping-math",
        "-Wno-psabi",
        "-shared",
        "-fPIC",
    ]
    subprocess.run(["g++", *flags, "functions.cpp", "-o", "functions.so"], cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "functions.so"))


def applied(library: ctypes.CDLL, name: str, x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    getattr(library, f"{name}_of")(
        ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr()), ctypes.c_long(x.numel())
    )
    return y


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_is_right_to_its_last_digits(library: ctypes.CDLL, name: str) -> None:
    theirs, allowed = FUNCTIONS[name]
    torch.manual_seed(0)
    for scale in (1e-6, 1e-3, 0.1, 1.0, 10.0, 80.0):
        x = torch.randn(10_007) * scale
        if name in ("logarithm", "root", "logarithm_of_one_plus"):
            x = x.abs()
        truth = theirs(x.double())
        seen = truth.abs() > 1e-30
        error = ((applied(library, name, x).double() - truth) / truth)[seen & truth.isfinite() & (truth.abs() < 3e38)]
        assert error.abs().max() < allowed, f"at {scale}"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_arguments_give_what_torch_gives(library: ctypes.CDLL, name: str) -> None:
    x = torch.tensor(SPECIAL)
    torch.testing.assert_close(applied(library, name, x), FUNCTIONS[name][0](x), rtol=1e-5, atol=1e-38, equal_nan=True)


def test_gelu_is_off_by_little(library: ctypes.CDLL) -> None:
    x = torch.linspace(-12, 12, 100_001)
    truth = torch.nn.functional.gelu(x.double())
    assert (applied(library, "gelu", x).double() - truth).abs().max() < 2e-6
    assert applied(library, "gelu", torch.tensor([float("nan")])).isnan().all()
