"""Small extensions that compile in a fraction of a second, since they include nothing of torch; and some that do."""

import shutil
import subprocess
from pathlib import Path

import pytest
from torch.utils import cpp_extension

NVCC = shutil.which("nvcc")

#: Takes minutes: each level of the recursion instantiates two of the next.
BOMB = """
template <int depth, long place> struct Bomb {
  static constexpr long value = Bomb<depth - 1, 2 * place>::value + Bomb<depth - 1, 2 * place + 1>::value;
};
template <long place> struct Bomb<0, place> { static constexpr long value = place; };
long f() { return Bomb<40, 0>::value; }
"""

#: A Python module of its own, for `load_inline(..., no_implicit_headers=True)`: `three()` is 3.
MODULE = r"""
#include <Python.h>
#define JOINED(a, b) a##b
#define INIT(name) JOINED(PyInit_, name)
#define TEXT(name) #name
#define QUOTED(name) TEXT(name)
static PyObject* three(PyObject*, PyObject*) { return PyLong_FromLong(3); }
static PyMethodDef methods[] = {{"three", three, METH_NOARGS, ""}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, QUOTED(TORCH_EXTENSION_NAME), nullptr, -1, methods};
extern "C" __attribute__((visibility("default"))) PyObject* INIT(TORCH_EXTENSION_NAME)() {
  return PyModule_Create(&module);
}
"""

#: A plain library, for `ctypes`.
LIBRARY = 'extern "C" int twice(int x) { return 2 * x; }\n'

#: What most files that a model writes look like.
TORCH = r"""
#include <torch/extension.h>
#include <cmath>

torch::Tensor softplus(torch::Tensor x) {
  TORCH_CHECK(x.dim() == 1, "one dimension, not ", x.dim());
  auto y = torch::zeros({x.size(0)}, torch::TensorOptions().dtype(torch::kFloat32).device(x.device()));
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "softplus", [&] {
    const scalar_t* from = x.data_ptr<scalar_t>();
    float* to = y.data_ptr<float>();
    for (int64_t i = 0; i < x.numel(); ++i) to[i] = std::log1p(std::exp(static_cast<float>(from[i])));
  });
  return torch::empty_like(y).copy_(y);
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("softplus", torch::wrap_pybind_function(softplus), "softplus");
}
"""


def link_without_cuda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nvcc's objects be linked where torch has no CUDA: empty libraries replace its own."""
    assert NVCC is not None
    home = Path(
        subprocess.run([NVCC, "--dryrun", "-x", "cu", "/dev/null"], capture_output=True, text=True, check=False)
        .stderr.split("TOP=")[1]
        .split()[0]
    ).resolve()
    if cpp_extension.CUDA_HOME is None:
        monkeypatch.setattr(cpp_extension, "CUDA_HOME", str(home))
    libraries = tmp_path / "libraries"
    libraries.mkdir()
    for name in ("c10_cuda", "torch_cuda"):
        empty = ["c++", "-shared", "-x", "c++", "/dev/null", "-o", str(libraries / f"lib{name}.so")]
        subprocess.run(empty, check=True)
    monkeypatch.setenv("LIBRARY_PATH", str(libraries))
