"""Starting kernels: the reference as a kernel, hand-written ones, and Inductor's code as a file of its own."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from kbevolve.archive.records import Backend, Kernel
from kbevolve.configs.catalog import builtin_names, find_problem
from kbevolve.configs.problem import Problem, parse_problem
from kbevolve.evaluators.program import Program, ProgramError
from kbevolve.evolve.proposers.seeds.inductor_file import CannotWrapError, Capture, wrap
from kbevolve.evolve.proposers.seeds.inductor_process import InductorError, InductorProcess, inductor_source
from kbevolve.evolve.proposers.seeds.seeds import starting_kernels
from kbevolve.evolve.proposers.tuning.tunables import values_of

#: A model with all that maps a graph's inputs back: a buffer, weights in a list, an inherited class, two results.
MODEL = '''"""A model with everything."""
from __future__ import annotations

import torch
from torch import nn

N = 48


class Scaled(nn.Linear):
    def forward(self, x: Later) -> torch.Tensor:
        return super().forward(x).tanh()


class Model(nn.Module):
    def __init__(self, width):
        super(Model, self).__init__()
        self.layers = nn.Sequential(Scaled(width, width), nn.ReLU(), nn.Linear(width, width))
        self.register_buffer("offset", torch.randn(width))
        self.unused = nn.Parameter(torch.randn(3))

    def forward(self, x: Later, y: torch.Tensor):
        z = self.layers(x) + self.offset
        return z * y, z.sum(dim=-1)


Later = torch.Tensor


def get_inputs():
    return [torch.randn(5, N), torch.randn(5, N)]


def get_init_inputs():
    return [N]
'''

#: What Inductor generates looks like this, in outline.
GENERATED = """# AOT ID: ['0_inference']
import torch
import os
from torch import device, empty_strided
aten = torch.ops.aten
assert_size_stride = torch._C._dynamo.guards.assert_size_stride
# kernel path: /tmp/someone/kernel.py
# Topologically Sorted Source Nodes: [x], Original ATen: [aten.add]
#   %add : Tensor "f32[4]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.add](args = (%x,), kwargs = {})
triton_0 = async_compile.triton('triton_0', '''
import triton
@triton_heuristics.pointwise(
    inductor_meta={'name': 'k', 'optimize_mem': True, 'no_x_dim': False, 'deterministic': True, 'backend_hash': ''},
)
''')
cpp_0 = async_compile.cpp('''
#include <cstdint>
    #pragma omp parallel
''')

class Runner:
    def recursively_apply_fns(self, fns):
        new_callables = []
        self.partitions = new_callables

    def call(self, args):
        arg0_1, arg1_1 = args
        args.clear()
        assert_size_stride(arg0_1, (4, ), (1, ), 'input')
        with torch.cuda._DeviceGuard(0):
            # Topologically Sorted Source Nodes: [x], Original ATen: [aten.add]
            buf0 = triton_0(arg0_1, cpp_0(arg1_1))
        return (buf0, )

runner = Runner(partitions=[])
call = runner.call

def get_args():
    return []

if __name__ == "__main__":
    print(get_args())
"""

#: Both files in one process that has nothing of ours: same names and weights, same answers as the fp64 reference.
COMPARE = """
import importlib.util, sys, torch
def load(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
reference, kernel = load("reference", sys.argv[1]), load("kernel", sys.argv[2])
assert not hasattr(kernel, "get_inputs")
models = []
for model_class in (reference.Model, kernel.ModelNew):
    torch.manual_seed(7)
    models.append(model_class(*reference.get_init_inputs()).eval())
old, new = models
assert [name for name, _ in old.named_parameters()] == [name for name, _ in new.named_parameters()]
for name, tensor in old.state_dict().items():
    assert torch.equal(tensor, new.state_dict()[name]), name
inputs, old = reference.get_inputs(), old.double()
for _ in range(2):
    results = new(*inputs)
    with torch.no_grad():
        truths = old(*(value.double() for value in inputs))
    single = isinstance(truths, torch.Tensor)
    for result, truth in zip([results] if single else results, [truths] if single else truths, strict=True):
        assert result.shape == truth.shape and result.dtype == torch.float32
        error = (result.double() - truth).norm() / (truth - truth.mean()).norm()
        assert error < 1e-5, error
"""

#: A cell whose `forward` replaces an attribute and a buffer, and returns a tensor twice.
CELL = """
import torch
from torch import nn


class Cell(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width)
        self.hidden = torch.randn(4, width)
        self.register_buffer("steps", torch.zeros(width))

    def forward(self, x):
        self.hidden = self.hidden.to(x)
        self.hidden = torch.tanh(self.layer(x + self.hidden))
        self.steps = self.steps + self.hidden.sum(dim=0)
        return self.hidden


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.cells = nn.Sequential(Cell(width), Cell(width))

    def forward(self, x):
        last = self.cells(x)
        return last, last * self.cells[1].steps, last


def get_inputs():
    return [torch.randn(4, 16)]


def get_init_inputs():
    return [16]
"""


def problem_of(source: str, folder: Path) -> Problem:
    (folder / "everything.py").write_text(source)
    return parse_problem(source, name="everything", path=folder / "everything.py")


def assert_computes_the_same(source: str, problem: Problem, folder: Path) -> None:
    (folder / "reference.py").write_text(problem.source_for("cpu"))
    (folder / "kernel.py").write_text(source)
    command = [sys.executable, "-c", COMPARE, "reference.py", "kernel.py"]
    environment = {"PATH": "/usr/bin:/bin", "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache")}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_every_problem_starts_with_its_reference_at_the_device_s_sizes() -> None:
    for name in builtin_names():
        problem = find_problem(name)
        for device_type in ("cpu", "cuda"):
            start = starting_kernels(problem, device_type)[0]
            assert start.note == "the reference itself"
            assert start.kernel.backend is Backend.TORCH
            names: dict[str, object] = {}
            exec(compile(start.kernel.source, name, "exec"), names)
            assert "ModelNew" in names
            assert not {"Model", "get_inputs", "get_init_inputs", "CPU_SIZES"} & set(names)
            if device_type == "cpu":
                assert {constant: names[constant] for constant in problem.cpu_sizes} == problem.cpu_sizes


def test_hand_written_kernels_of_the_device_follow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for file in ("cuda.py", "triton_split.py", "cpp.py", "triton.py", "notes.py"):
        path = tmp_path / "seeds" / "L1" / "matmul" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"ModelNew = {file!r}\n")
    monkeypatch.setattr("kbevolve.configs.seeds.__file__", str(tmp_path / "seeds" / "__init__.py"))
    problem = find_problem("L1/matmul")
    on_gpu = starting_kernels(problem, "cuda")
    assert [start.note for start in on_gpu[1:]] == [
        f"hand-written: {file}" for file in ("cuda.py", "triton.py", "triton_split.py")
    ]
    assert on_gpu[1].kernel.source == "ModelNew = 'cuda.py'\n"
    assert [start.note for start in starting_kernels(problem, "cpu")[1:]] == ["hand-written: cpp.py"]
    assert len(starting_kernels(find_problem("L1/softmax"), "cpu")) == 1


@pytest.mark.slow
def test_the_reference_as_a_kernel_computes_the_same(tmp_path: Path) -> None:
    problem = problem_of(MODEL, tmp_path)
    assert_computes_the_same(starting_kernels(problem, "cpu")[0].kernel.source, problem, tmp_path)


@pytest.mark.slow
def test_inductor_s_failure_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InductorError, match=r"^OSError: no licence$"):
        inductor_source(problem_of(MODEL + "\nraise OSError('no licence\\nsee the manual')\n", tmp_path), "cpu")


@pytest.mark.slow
def test_a_model_that_warns_has_inductor_s_code(tmp_path: Path) -> None:
    text = MODEL.replace(
        "super().forward(x).tanh()", "nn.InstanceNorm2d(3)(super().forward(x)[:, None, None])[:, 0, 0]"
    )
    assert "ModelNew" in inductor_source(problem_of(text, tmp_path), "cpu")


def test_what_was_written_before_a_failure_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(program: Program) -> None:
        raise ProgramError("no templates today")

    monkeypatch.setattr(Program, "wait", fail)
    with InductorProcess(problem_of(MODEL, tmp_path), "cpu", templates=True) as process:
        with pytest.raises(InductorError, match="no templates today"):
            process.source()
        monkeypatch.setattr(InductorProcess, "_read", lambda self, name: "kernel" if name == "kernel.py" else None)
        assert process.source() == "kernel"
        assert process.failure == "no templates today"
        assert process.fused() is None


@pytest.mark.slow
def test_inductor_s_code_works_alone_and_computes_the_same(tmp_path: Path) -> None:
    problem = problem_of(MODEL, tmp_path)
    source = inductor_source(problem, "cpu")
    assert "call([self.layers._modules['0'].weight, self.layers._modules['0'].bias, x, " in source
    assert "async_compile.cpp_pybinding" in source
    assert not re.search(r"\b(get_args|benchmark_compiled_module|tempfile)\b", source)
    assert_computes_the_same(source, problem, tmp_path)


@pytest.mark.slow
def test_state_that_the_reference_replaces_is_replaced(tmp_path: Path) -> None:
    problem = problem_of(CELL, tmp_path)
    source = inductor_source(problem, "cpu")
    for name in ("hidden", "steps"):
        assert len(re.findall(rf"^        self\.cells\._modules\['[01]'\]\.{name} = results", source, re.M)) == 2
    assert "hidden.to(x.device)" in source, "Module.to() leaves it where it is"
    assert "steps.to(" not in source
    assert_computes_the_same(source, problem, tmp_path)


@pytest.mark.slow
def test_state_that_the_reference_changes_in_place_is_changed(tmp_path: Path) -> None:
    problem = problem_of(MODEL.replace("z = self", "self.offset += 1; z = self"), tmp_path)
    assert_computes_the_same(inductor_source(problem, "cpu"), problem, tmp_path)


@pytest.mark.slow
def test_inductor_s_kernel_has_the_cpu_s_sizes(tmp_path: Path) -> None:
    problem = find_problem("L2/gemm_bias_relu")
    source = inductor_source(problem, "cpu")
    assert Kernel.from_source(source).backend is Backend.CPP
    assert "return call([self.gemm.weight, x, self.bias])[0]" in source
    assert_computes_the_same(source, problem, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("return z * y, z.sum(dim=-1)", "print('here'); return z * y, z.sum(dim=-1)", "Unsupported"),
        ("return z * y, z.sum(dim=-1)", "return {'z': z}", "returns a dict"),
        ("return z * y, z.sum(dim=-1)", "return z, y", "such as an input"),
    ],
)
def test_code_that_does_not_work_alone_gives_no_kernel(old: str, new: str, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(InductorError, match=complaint) as error:
        inductor_source(problem_of(MODEL.replace(old, new), tmp_path), "cpu")
    assert "\n" not in str(error.value)


def captured(code: str = GENERATED, arguments: tuple[str, ...] = ("x", "self.offset")) -> Capture:
    return Capture(code=code, arguments=arguments, outputs=1, returned=(0,), single=True)


def test_the_file_has_what_is_used_and_nothing_about_the_machine() -> None:
    text = wrap(captured(), MODEL, version="9.9")
    compile(text, "kernel.py", "exec")
    assert text.startswith('"""What torch.compile (Inductor, PyTorch 9.9) generates')
    assert "from __future__ import annotations\nimport torch._inductor.config" in text
    assert "        return call([x, self.offset])[0]" in text
    for used in (
        "import torch\n",
        "assert_size_stride = ",
        "triton_0 = ",
        "class Runner",
        "call = runner.call",
        "#include <cstdint>\n    #pragma omp parallel\n",
        "    inductor_meta={'name': 'k', 'deterministic': True},\n",
        "N = 48",
    ):
        assert used in text
    for unused in (
        "import os",
        "device, empty",
        "aten",
        "AOT",
        "# ",
        "recursively_apply_fns",
        "/tmp",
        "get_args",
        "__main__",
        "A model with everything",
    ):
        assert unused not in text
    assert "vec_isa_ok" in text
    plain = GENERATED.replace("async_compile.cpp", "print")
    assert "vec_isa_ok" not in wrap(captured(plain), MODEL, version="9.9"), "that is about C++ kernels"


@pytest.mark.parametrize("launches", [7, 8, 24])
def test_many_launches_of_a_gpu_become_one(launches: int) -> None:
    many = "\n".join(["            triton_0.run(arg0_1, stream=stream0)"] * launches)
    generated = GENERATED.replace("            buf0 =", f"{many}\n            buf0 =")
    text = wrap(captured(generated), MODEL, version="9.9")
    compile(text, "kernel.py", "exec")
    if launches < 8:
        assert "        return call([x, self.offset])[0]" in text
        assert "REPLAYED" not in text
    else:
        assert "        return replay([x, self.offset], x)[0]" in text
        assert values_of(text)["REPLAYED"] == ("1" if launches == 24 else "0")
    on_cpu = generated.replace("with torch.cuda._DeviceGuard(0)", "if True")
    assert "REPLAYED" not in wrap(captured(on_cpu), MODEL, version="9.9")


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("aten = torch.ops.aten", "_tensor_constant0 = None  # tensor(3)", "a constant tensor \\(_tensor_constant0\\)"),
        ("arg0_1, arg1_1 = args", "arg0_1, = args", "takes \\[1\\] and returns \\[1\\] tensors"),
        ("return (buf0, )", "return (arg0_1, buf0, )", "takes \\[2\\] and returns \\[2\\] tensors"),
        ("def call(", "def run(", "no call\\(args\\)"),
        ("class Runner:", "class Scaled: ...\nclass Runner:", "both define Scaled"),
    ],
)
def test_code_that_needs_more_than_its_text_is_refused(old: str, new: str, complaint: str) -> None:
    assert old in GENERATED
    with pytest.raises(CannotWrapError, match=complaint):
        wrap(captured(GENERATED.replace(old, new)), MODEL, version="9.9")
