import pytest

from kbevolve.configs.catalog import find_problem
from kbevolve.configs.seeds import seed_files
from kbevolve.islands.canonical import canonical_id, canonical_tokens
from kbevolve.islands.resemblance import resemblance, sample

TRITON = """import torch
import triton
import triton.language as tl


@triton.jit
def double(x_ptr, y_ptr, count, BLOCK: tl.constexpr):
    # two for one
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < count
    tl.store(y_ptr + offsets, 2 * tl.load(x_ptr + offsets, mask=mask), mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        double[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        return y
"""
CUDA = '''import torch
SOURCE = r"""
__global__ void twice(const float* __restrict__ x, float* y, int count) {
  int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at < count) y[at] = 2.0f * x[at];
}
"""


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return build(SOURCE).twice(x)
'''


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("# two for one", "# something else entirely"),
        ("offsets", "where"),
        ("    mask = ", "\n    mask   =   "),
        ("y = torch.empty_like(x)", "y = torch.empty_like(x)  # fresh"),
    ],
)
def test_names_comments_and_layout_make_no_other_program(before: str, after: str) -> None:
    assert before in TRITON
    assert canonical_id(TRITON.replace(before, after)) == canonical_id(TRITON)


@pytest.mark.parametrize(("before", "after"), [("at", "number"), ("float* y", "float *  y"), ("count", "n")])
def test_nor_do_they_in_cuda(before: str, after: str) -> None:
    changed = CUDA.replace(f" {before} ", f" {after} ").replace(f"[{before}]", f"[{after}]")
    changed = changed.replace(f"({before} ", f"({after} ").replace(f"< {before})", f"< {after})")
    changed = changed.replace(f"int {before})", f"int {after})").replace(f"const {before}", f"const {after}")
    changed = changed.replace(f", {before},", f", {after},")
    assert changed != CUDA
    assert canonical_id(changed) == canonical_id(CUDA)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("2 * tl.load", "3 * tl.load"),
        ("tl.load(", "tl.atomic_add("),
        ("1024", "2048"),
        ("x_ptr + offsets", "y_ptr + offsets"),
    ],
)
def test_what_is_compiled_makes_another_program(before: str, after: str) -> None:
    assert canonical_id(TRITON.replace(before, after, 1)) != canonical_id(TRITON)


def test_a_branch_that_is_switched_off_is_not_there() -> None:
    live = 'FAST = 0\nSOURCE = r"""\n#define FAST 0\n#if FAST\nint quick;\n#endif\nint slow;\n"""\n'
    assert canonical_id(live) == canonical_id(live.replace("int quick;", "int quicker; int still;"))
    assert canonical_id(live) != canonical_id(live.replace("int slow;", "int slow; int slower;"))


def test_attributes_keep_their_names() -> None:
    assert "arange" in canonical_tokens("import torch\n\ndef f(arange):\n    return torch.arange(arange)\n")


def test_what_is_no_python_is_a_program_too() -> None:
    assert canonical_id("def f(:\n") == canonical_id("def  f( :")
    assert canonical_tokens("")


def test_a_small_change_resembles_and_another_kernel_does_not() -> None:
    seeds = [file.read_text() for name in ("L1/matmul", "L1/softmax") for file in seed_files(name, "cuda")]
    same = sample(seeds[0])
    assert resemblance(same, sample(seeds[0].replace("BLOCK_M", "ROWS"))) == 1
    changed = seeds[0].replace("        return C\n", "        return C.clone() if C.numel() > 7 else C\n")
    assert changed != seeds[0]
    assert 0.9 < resemblance(same, sample(changed)) < 1
    assert all(resemblance(same, sample(other)) < 0.6 for other in seeds[1:])
    assert resemblance(same, sample(find_problem("L1/matmul").source)) < 0.2


def test_the_estimate_is_near_the_truth() -> None:
    words = [f"value_{number} = compute({number})" for number in range(4000)]
    whole, half = "\n".join(words), "\n".join(words[:2000])
    # Half of the text: the other's shingles are all of its own, and twice as many.
    assert resemblance(sample(whole), sample(half)) == pytest.approx(0.5, abs=0.1)
    assert resemblance(sample(half), sample(whole)) == resemblance(sample(whole), sample(half))
