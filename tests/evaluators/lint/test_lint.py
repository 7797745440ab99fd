"""The lint as the judge calls it: honest kernels pass with the right tags, policies refuse, nothing makes it fail."""

import ast
import copy
import random
import re
import time
from pathlib import Path

import pytest

from kbevolve.configs.catalog import find_problem
from kbevolve.configs.reference import as_model_new
from kbevolve.evaluators.lint import REFUSALS, TAGS, LintReport, lint
from kbevolve.evolve.proposers.seeds.inductor_process import inductor_source
from tests.evaluators.lint.pairs import PAIRS
from tests.evaluators.lint.programs import TRITON, extension, model

ROOT = Path(__file__).parents[3]
SEEDS = sorted((ROOT / "configs" / "seeds").glob("L*/*/*.py"))
PROBLEMS = sorted((ROOT / "configs" / "problems").rglob("*.py"))
#: What the hand-written kernels do beside their own arithmetic.
SEED_TAGS = {"data-pointer", "file-write", "fast-math", "half-types"}


@pytest.mark.parametrize("file", SEEDS, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_starting_kernels_compute_everything_themselves(file: Path) -> None:
    found = lint(file.read_text(), allow_library="none")
    assert found.refusal == ""
    assert set(found.tags) <= SEED_TAGS
    assert ("data-pointer" in found.tags) == (file.stem != "triton")


@pytest.mark.parametrize("file", PROBLEMS, ids=lambda file: file.stem)
def test_a_reference_as_a_kernel_is_recognised(file: Path) -> None:
    reference = file.read_text()
    found = lint(as_model_new(reference), reference_source=reference)
    assert {"library-only", "reference-copied"} <= set(found.tags)
    assert {"library-heavy", "library-light"} & set(found.tags)
    assert found.refusal == ""
    assert "reference-copied" not in lint(model(), reference_source=reference).tags


@pytest.mark.slow
@pytest.mark.parametrize(("name", "heavy"), [("L2/gemm_gelu_scale", True), ("L1/softmax", False)])
def test_generated_kernels_are_accepted(name: str, heavy: bool) -> None:
    source = inductor_source(find_problem(name), "cpu")
    found = lint(source, allow_library="full")
    assert found.refusal == ""
    assert ("library-heavy" in found.tags) == heavy
    assert "library-only" not in found.tags
    assert bool(lint(source, allow_library="partial").refusal) == heavy


def test_a_copy_is_recognised_under_other_names() -> None:
    reference = model(forward="z = torch.relu(x)\nreturn z @ y").replace("ModelNew", "Model")
    copy = model(
        forward='"""Words."""\nout: torch.Tensor = torch.relu(a)\nreturn out @ b',
        arguments="a, b",
    )
    assert "reference-copied" in lint(copy, reference_source=reference).tags
    other = model(forward="z = torch.relu(y)\nreturn z @ x")
    assert "reference-copied" not in lint(other, reference_source=reference).tags


@pytest.mark.parametrize(
    ("source", "refused_by"),
    [
        (model(forward="return x @ y"), {"partial", "none"}),
        (model(forward="return torch.relu(x)"), {"none"}),
        (model(forward="return x * 2 + y"), {"none"}),
        (model(init="self.w = nn.Parameter(torch.randn(3, 3) @ torch.randn(3, 3))"), set()),
        (
            model(
                forward="""
                x = x.contiguous().view(-1).to(torch.float32)
                out = torch.empty_like(x)
                zeros = torch.zeros(x.shape[0] * 2, device=x.device, dtype=x.dtype)
                EXT.run(x.data_ptr(), out.data_ptr(), x.numel(), x.stride(0), zeros)
                return out.reshape(y.size(0), -1).transpose(0, 1)
                """
            ),
            set(),
        ),
        (extension("at::Tensor run(at::Tensor x) { return at::relu(x); }"), {"none"}),
        (extension("at::Tensor run(at::Tensor x) { return x.sum(); }"), {"none"}),
        (extension("at::Tensor run(at::Tensor x) { auto y = at::empty_like(x.contiguous()); return y; }"), set()),
        (extension("void run(float* x) { auto v = at::vec::Vectorized<float>::loadu(x).exp(); }"), set()),
        (extension("void run() { cudnnConvolutionForward(h); }"), {"partial", "none"}),
        (model(top=TRITON, forward="copy_kernel[(1,)](x, y, 3, BLOCK=4)\nreturn y"), set()),
    ],
)
def test_the_policy_on_libraries(source: str, refused_by: set[str]) -> None:
    refusals = {policy: lint(source, allow_library=policy).refusal for policy in ("full", "partial", "none")}  # type: ignore[arg-type]
    assert {policy for policy, refusal in refusals.items() if refusal} == refused_by
    assert all(refusal.startswith("not accepted: ") for refusal in refusals.values() if refusal)


def test_a_refusal_names_what_to_do_and_not_how_it_was_found() -> None:
    found = lint(model(forward="return torch.mm(x, y)"), allow_library="partial")
    assert found.refusal == (
        "not accepted: the heavy operations of libraries in forward (here mm); compute this in a kernel of your own. "
        "Allocation, views and copies by torch are fine"
    )
    assert all(";" in sentence for sentence in REFUSALS.values()), "what is wrong; what to do"


def test_only_what_has_a_kernel_is_more_than_library() -> None:
    assert "library-only" in lint(model(forward="return x @ y")).tags
    assert "library-only" not in lint(model(top=TRITON, forward="copy_kernel[(1,)](x, y, 3, BLOCK=4)\nreturn y")).tags
    assert "library-only" not in lint(extension("void run() {}")).tags


def test_honest_words_that_look_dangerous() -> None:
    source = extension(
        """
        // std::thread, torch::mm, cudaStreamCreate: all of it is said here and nothing of it done.
        __global__ void run(float* x, int n) {
          for (int pass = 0; pass < 4; pass++) { int half = n / 2; x[half] += pass; }  /* fork(); */
        }
        """,
        top='''
        def explain():
            """exec(base64.b64decode(x)); import socket; torch.mm(a, b)"""
            raise ValueError("static std::map<int, at::Tensor> m; at::mm(a, b);")
        ''',
    )
    assert lint(source, allow_library="none") == LintReport(tags=(), refusal="")


def test_the_usual_form_of_a_cuda_extension() -> None:
    source = extension(
        """
        #include <torch/extension.h>
        #include <c10/cuda/CUDAStream.h>
        #define CHECK(x) TORCH_CHECK(x.is_cuda() && x.is_contiguous(), #x " must be contiguous")

        template <typename scalar_t>
        __global__ void add(const scalar_t* __restrict__ a, scalar_t* out, int64_t n) {
          static __shared__ float tile[32];
          for (int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) out[i] = a[i] + 1;
        }

        torch::Tensor run(torch::Tensor a, const at::Tensor& b) {
          CHECK(a);
          const at::cuda::OptionalCUDAGuard guard(device_of(a));
          const auto options = torch::TensorOptions().dtype(torch::kFloat32).device(a.device());
          auto out = torch::empty({a.size(0), b.numel()}, options);
          auto zeros = torch::zeros_like(a.view({-1}).to(at::kFloat));
          auto stream = at::cuda::getCurrentCUDAStream();
          AT_DISPATCH_FLOATING_TYPES(a.scalar_type(), "add", ([&] {
            add<scalar_t><<<1, 256, 0, stream>>>(a.data_ptr<scalar_t>(), out.data_ptr<scalar_t>(), a.numel());
          }));
          C10_CUDA_KERNEL_LAUNCH_CHECK();
          if (cudaGetLastError() != cudaSuccess) throw std::runtime_error("launch");
          return out;
        }
        """,
        top="import os\nos.environ['TORCH_CUDA_ARCH_LIST'] = '9.0'",
        forward="return EXT.run(x.contiguous(), self.weight)",
        keywords=", extra_cuda_cflags=['-O3']",
    )
    assert lint(source, allow_library="none") == LintReport(tags=("data-pointer", "flags"), refusal="")


def test_kernels_in_strings_as_torch_compile_writes_them() -> None:
    source = model(
        top="""
import torch._inductor.config
from torch._C import _cuda_getCurrentRawStream as get_raw_stream
from torch._inductor.async_compile import AsyncCompile

torch._inductor.config.compile_threads = 1
empty_strided_cuda = torch._C._dynamo.guards._empty_strided_cuda
async_compile = AsyncCompile()

kernel = async_compile.triton('kernel', '''
import triton
import triton.language as tl
from torch._inductor.runtime import triton_heuristics, triton_helpers

triton_helpers.set_driver_to_gpu()

@triton_heuristics.pointwise(size_hints={'x': 64}, triton_meta={'device': 0})
@triton.jit
def kernel(a, out, n, XBLOCK : tl.constexpr):
    at = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:]
    value = tl.load(a + at, at < n)
    tl.store(out + at, value.to(tl.float32) * tl.sum(value, 0) @ value, at < n)
''', device_str='cuda')
async_compile.wait(globals())


def call(args):
    (a,) = args
    args.clear()
    with torch.cuda._DeviceGuard(0):
        torch.cuda.set_device(0)
        out = empty_strided_cuda((64, ), (1, ), torch.float32)
        kernel.run(a, out, 64, stream=get_raw_stream(0))
    return (out, )
""",
        forward="return call([x])[0]",
    )
    assert lint(source, allow_library="none") == LintReport(tags=(), refusal="")


def documented(part: int) -> dict[str, str]:
    """A table of docs/tags.md: the lint's, the evaluation's, or the card's."""
    text = (ROOT / "docs" / "tags.md").read_text().split("\n## ")[part]
    rows = re.findall(r"^\| `([\w-]+)` \| (.+) \|$", text, re.MULTILINE)
    assert rows == sorted(dict(rows).items())
    return dict(rows)


def given(source: str) -> tuple[set[str], set[str]]:
    """The texts that a module of ours puts among an evaluation's tags, and among a card's flags."""
    tags: set[str] = set()
    flags: set[str] = set()
    tree = ast.parse(source)
    named = {
        name: value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for name, value in [(getattr(node.targets[0], "id", ""), getattr(node.value, "value", None))]
        if isinstance(value, str)
    }
    for node in ast.walk(tree):
        match node:
            case ast.AugAssign(target=ast.Attribute(attr="tags"), value=value) | ast.keyword(arg="tags", value=value):
                parts = list(ast.walk(value))
            case ast.Assign(targets=[ast.Name(id="tags")], value=ast.Dict(keys=parts)):
                pass
            case ast.FunctionDef(name="tags", body=[*_, ast.Return(value=ast.AST() as value)]):
                parts = list(ast.walk(value))
            case ast.Subscript(value=ast.Attribute(attr="_flags"), slice=ast.Constant(value=name), ctx=ast.Store()):
                flags.add(name)
                continue
            case _:
                continue
        tags |= {part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)}
        tags |= {named[part.id] for part in parts if isinstance(part, ast.Name) and part.id in named}
    return tags, flags


def test_the_document_lists_every_tag() -> None:
    assert documented(0) == TAGS
    assert list(TAGS) == sorted(TAGS)
    assert set(REFUSALS) <= set(TAGS)
    found = [given(file.read_text()) for file in (ROOT / "evaluators").rglob("*.py")]
    assert set(documented(1)) == {tag for tags, _ in found for tag in tags}
    assert set(documented(2)) == {flag for _, flags in found for flag in flags}


def test_every_tag_can_be_had() -> None:
    seen = {tag for pair in PAIRS.values() for tag in lint(pair.trick).tags}
    assert seen == set(TAGS)


@pytest.mark.parametrize("source", ["def f(:", "\0", "", "x = '\\ud800'", "(" * 500, "import", "\ufeffx = 1"])
def test_what_is_no_kernel_is_no_error(source: str) -> None:
    assert lint(source).refusal == ""


@pytest.mark.parametrize(
    "source",
    [
        "x = " + "+".join(["a"] * 3000),
        "x = " + "+".join(["'ab'"] * 3000),
        "x = a" + ".b" * 800,
        "x = f" + "()" * 800,
        "def forward(x: a" + ".b" * 800 + "):\n    return 'abc'[1" + "+1" * 800 + "]",
        "x = " + "[" * 80 + "]" * 80,
        "a = b\nb = a\nc = a.b(b.a)\na = c\nb = c + a",
        "class A(A):\n    def f(self):\n        return self.f()\nA().f().g",
        "def f(x=lambda: f(f)):\n    return f(f)(f)\nf(f)",
        "x = 'a' * 10 ** 12\ny = '{}' .format(x, x) * 9\nz = '%s' % (1,)\nw = ''.join(x)",
        "x = __import__(*a, **b)\ngetattr()\nsetattr(a)\nexec()\ntype(1, 2)\nopen()\n",
        "import ctypes, subprocess\nctypes.CDLL()\nsubprocess.run()\nimport sys\nsys.modules.get()",
        "from .. import *\nfrom . import a\nmatch x:\n    case [a, *b]: pass\n    case {'k': v, **r}: pass",
        "\n".join(f"v{i} = v{i - 1} + v{i - 1}" for i in range(1, 400)),
        "\n".join(f"v{i} = [v{i - 1}, v{i - 1}, v{i - 2}]" for i in range(1, 400)),
        "C = '''"
        + "#define A0 x\n"
        + "".join(f"#define A{i} A{i - 1} A{i - 1}\n" for i in range(1, 40))
        + "A39;'''\nD = C",
        "C = '''#define F(x) F(x) x ## x ## (\nF(F(F(1;)))) F( \n#define\n#include\n## # %:'''\nD = C",
        "".join(f"def {'a' * n}(): pass\n" for n in range(1, 200)) + "getattr(x, f'" + "{y}a" * 300 + "b')",
        "def forward(): pass\n" + "".join(f"def f{n}(): getattr(x, y + '{n}')\n" for n in range(800)),
        "C = r'''" + "{" * 5000 + 'R"x(' + "\\\n" * 500 + "/* \" '''\nD = C",
    ],
    ids=range(20),
)
def test_odd_programs_are_read_soon(source: str) -> None:
    """Circles, depth and explosions; a second is generous; endless work is what it would catch."""
    start = time.process_time()
    lint(source, allow_library="none", reference_source=source)
    assert time.process_time() - start < 1.0


def test_a_text_that_python_warns_of_is_read_all_the_same() -> None:
    assert "library-heavy" in lint(model(top="P = '\\d'\nassert (1, 'x')", forward="return x @ y if 1is 1 else x")).tags


def test_mutated_kernels_never_raise() -> None:
    """Kernels with random expressions in place of others are read without an error, whatever they mean."""
    choose = random.Random(7)
    trees = [ast.parse(text) for text in (SEEDS[0].read_text(), TRITON, *(pair.trick for pair in PAIRS.values()))]
    expressions = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.expr)]
    read = 0
    for _ in range(300):
        tree = ast.parse(ast.unparse(choose.choice(trees)))
        for _ in range(choose.randint(1, 6)):
            _replace_one(tree, choose, choose.choice(expressions))
        source = ast.unparse(tree)
        lint(source, allow_library="partial", reference_source=source)
        read += _is_python(source)
    assert read > 100


def _is_python(source: str) -> bool:
    try:
        return bool(ast.parse(source).body)
    except SyntaxError:
        return False


def _replace_one(tree: ast.Module, choose: random.Random, by: ast.expr) -> None:
    """Put an expression in the place of another that is read."""
    places = [
        (node, name)
        for node in ast.walk(tree)
        for name, child in ast.iter_fields(node)
        if isinstance(child, ast.expr) and isinstance(getattr(child, "ctx", ast.Load()), ast.Load)
    ]
    node, name = choose.choice(places)
    setattr(node, name, copy.deepcopy(by))
