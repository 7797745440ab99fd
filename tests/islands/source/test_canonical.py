import builtins
import keyword
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbevolve.configs.catalog import builtin_names
from kbevolve.configs.seeds import seed_files
from kbevolve.islands.source.canonical import canonical_id

ROOT = Path(__file__).parents[3]

TRITON = '''"""Twice x."""
import torch
import triton
import triton.language as tl


@triton.jit
def double(x_ptr, y_ptr, count, BLOCK: tl.constexpr):
    """Two for one."""
    # two for one
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < count
    tl.store(y_ptr + offsets, 2 * tl.load(x_ptr + offsets, mask=mask), mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        sizes = [side for side in x.shape]
        double[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        return y.view(sizes)
'''

#: Characters of a comment.
LINE = st.characters(exclude_characters="\r\n\f\v\0", exclude_categories=("Cs",))

CUDA = '''import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cuda.h>  // the driver
#define SQUARE(x) ((x) * (x))
__global__ void twice(const float* __restrict__ x, float* y, int count) {
  int at = blockIdx.x * blockDim.x + threadIdx.x;  // where
  if (at < count) y[at] = 2.0f * x[at];
}
"""
BINDINGS = "void launch(torch::Tensor x);"
LIBRARY = load_inline(name="twice", cpp_sources=BINDINGS, cuda_sources=[SOURCE], functions=["launch"])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return LIBRARY.launch(x)
'''


def changed(source: str, *changes: tuple[str, str]) -> str:
    for before, after in changes:
        assert before in source, before
        source = source.replace(before, after)
    return source


# ---- equal ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("# two for one", "# something else entirely"),
        ('"""Two for one."""', '"""Words about it, offsets and masks."""'),
        ('"""Twice x."""\n', ""),
        ("offsets", "where"),
        ("    mask = ", "\n    mask   =   "),
        ("y = torch.empty_like(x)", "y = torch.empty_like(x)  # fresh"),
        ("side", "edge"),
        ("(x, y, x.numel(), BLOCK=1024)", "(\n            x, y,\n            x.numel(), BLOCK=1024,\n        )"),
        ("1024", "0x400"),
        ("\n", "\r\n"),
    ],
)  # fmt: skip
def test_names_comments_and_layout_make_no_other_kernel(before: str, after: str) -> None:
    assert canonical_id(changed(TRITON, (before, after))) == canonical_id(TRITON)


def test_several_local_names_may_change_at_once_and_be_exchanged() -> None:
    renamed = re.sub(r"\bmask\b(?!=)", "inside", changed(TRITON, ("offsets", "at"), ("sizes", "shape_of_x")))
    assert canonical_id(renamed) == canonical_id(TRITON)
    swapped = re.sub(r"\bmask\b(?!=)", "offsets", changed(TRITON, ("offsets", "tmp"))).replace("tmp", "mask")
    assert canonical_id(swapped) == canonical_id(TRITON)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("// where", "// there, and \\n * not here"),
        ("  // where", ""),
        ("// where", "// where \\\n  at = 0;"),
        ("  // the driver", ""),
        ("float* y", "float*   y"),
        ("  int at", "\n\n/* a\nlong\nword */  int at"),
    ],
)
def test_comments_and_blanks_of_what_is_only_compiled_make_no_other_kernel(before: str, after: str) -> None:
    assert canonical_id(changed(CUDA, (before, after))) == canonical_id(CUDA)


def test_a_parameter_keeps_its_name_for_others_may_say_it() -> None:
    assert canonical_id(changed(TRITON, ("count", "n"))) != canonical_id(TRITON)


NAMES = st.from_regex(r"[a-z][a-z_]{0,7}", fullmatch=True).filter(
    lambda name: not keyword.iskeyword(name) and not re.search(rf"\b{name}\b", TRITON) and name not in dir(builtins)
)


@given(st.lists(NAMES, min_size=3, max_size=3, unique=True))
def test_any_names_may_be_given_to_local_variables(names: list[str]) -> None:
    text = TRITON
    for local, name in zip(("offsets", "sizes", "side"), names, strict=True):
        text = re.sub(rf"\b{local}\b", name, text)
    assert canonical_id(text) == canonical_id(TRITON)


@given(
    st.sampled_from([at for at, line in enumerate(TRITON.splitlines()) if at > 3 and line]), st.text(LINE, max_size=30)
)
def test_any_comment_may_stand_at_any_line(at: int, words: str) -> None:
    lines = TRITON.splitlines()
    lines[at] += f"  # {words}"
    assert canonical_id("\n".join(lines)) == canonical_id(TRITON)


@given(st.sampled_from([one.span() for one in re.finditer(r"\b\d+\b", TRITON)]), st.integers(0, 10**6))
def test_any_other_constant_makes_another_kernel(span: tuple[int, int], value: int) -> None:
    text = f"{TRITON[: span[0]]}{value}{TRITON[span[1] :]}"
    assert (canonical_id(text) == canonical_id(TRITON)) == (value == int(TRITON[slice(*span)]))


# ---- different -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("2 * tl.load", "3 * tl.load"),
        ("tl.load(", "tl.atomic_add("),
        ("1024", "2048"),
        ("1024", "1024.0"),
        ("x_ptr + offsets", "y_ptr + offsets"),
        ("mask=mask)", "other=mask)"),
        ("offsets < count", "offsets <= count"),
        ("y.view(sizes)", "y.view(x)"),
        ("BLOCK=1024)", "BLOCK=1024, num_warps=8)"),
        ("@triton.jit\n", ""),
    ],
)
def test_what_runs_makes_another_kernel(before: str, after: str) -> None:
    assert canonical_id(changed(TRITON, (before, after))) != canonical_id(TRITON)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("2.0f", "3.0f"),
        ("SQUARE(x)", "SQUARE (x)"),
        ("// where", "\n#define count 7\n"),
        ("int at =", "int at = -"),
        ('name="twice"', 'name="thrice"'),
        ("#include <cuda.h>", "#include <cuda_fp16.h>"),
        ("blockIdx.x", "threadIdx.x"),
    ],
)
def test_what_is_compiled_makes_another_kernel(before: str, after: str) -> None:
    assert canonical_id(changed(CUDA, (before, after))) != canonical_id(CUDA)


# ---- our own files ---------------------------------------------------------------------------------------------------


def seeds() -> list[Path]:
    return sorted({file for name in builtin_names() for device in ("cpu", "cuda") for file in seed_files(name, device)})


def test_starting_kernels_are_kernels_of_their_own() -> None:
    files = seeds()
    assert len(files) >= 18
    assert len({canonical_id(file.read_text()) for file in files}) == len(files)


def test_comments_in_the_code_of_our_starting_kernels_and_prompts_do_not_count() -> None:
    """So the list of known builders is up to date."""
    prompts = (ROOT / "evolve" / "proposers" / "codegen" / "templates" / "_backends.jinja").read_text()
    texts = re.findall(r"```python\n(.*?)```", prompts, re.DOTALL) + [one.read_text() for one in seeds()]
    native = [text for text in texts if 'SOURCE = r"""' in text]
    assert len(native) >= 14
    for text in native:
        noted = text.replace('SOURCE = r"""', 'SOURCE = r"""// Words about what follows.\n')
        assert canonical_id(noted) == canonical_id(text), text[:300]
        assert canonical_id(noted.replace("int64_t", "int32_t").replace("long", "int")) != canonical_id(text)


@pytest.mark.parametrize(
    "text", ["", "\x00", "(" * 3000, "x = " + "-" * 20_000 + "1", "x = 1" + "0" * 5000, "x = '\ud800'"]
)
def test_any_text_has_a_form(text: str) -> None:
    assert canonical_id(text) == canonical_id(text) != canonical_id(text + "\ny = 2\n")
