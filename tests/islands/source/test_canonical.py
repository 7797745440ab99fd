import builtins
import keyword
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbevolve.configs.catalog import builtin_names
from kbevolve.configs.seeds import seed_files
from kbevolve.islands.source.canonical import canonical_id, shell_of

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


def kernel(body: str, top: str = "") -> str:
    lines = "\n".join(f"        {line}" for line in body.split("\n"))
    return f"import torch\n{top}\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n{lines}\n"


#: Pairs that behave differently, or may: each differs in what alone would be a comment, a blank or a local name.
LOOKALIKES = {
    "a comment in a string": (
        kernel('return x if "a # b".count("#") else -x'),
        kernel('return x if "a  b".count("#") else -x'),
    ),
    "blanks in a string": (kernel('return x * len("a b")'), kernel('return x * len("a  b")')),
    "a docstring that is read": (
        kernel("return x * len(double.__doc__)", 'def double():\n    """ab"""'),
        kernel("return x * len(double.__doc__)", 'def double():\n    """abc"""'),
    ),
    "a docstring that is read by getattr": (
        kernel('return x * len(getattr(double, "__doc__"))', 'def double():\n    """ab"""'),
        kernel('return x * len(getattr(double, "__doc__"))', 'def double():\n    """abc"""'),
    ),
    "a docstring that is read by a name put together": (
        kernel('return x * len(getattr(double, "__d" + "oc__"))', 'def double():\n    """ab"""'),
        kernel('return x * len(getattr(double, "__d" + "oc__"))', 'def double():\n    """abc"""'),
    ),
    "a docstring that a decorator may read": (
        kernel("return double(x)", 'from words import meant\n@meant\ndef double(x):\n    """ab"""'),
        kernel("return double(x)", 'from words import meant\n@meant\ndef double(x):\n    """abc"""'),
    ),
    "a module's docstring": (
        '"""a"""\n' + kernel("return x * len(__doc__)"),
        '"""ab"""\n' + kernel("return x * len(__doc__)"),
    ),
    "a global of one name": (
        kernel("global scale\nscale = 2\nreturn x * scale", "scale = 1"),
        kernel("scale = 2\nreturn x * scale", "scale = 1"),
    ),
    "two globals": (
        kernel("global one\none = 2\nreturn x * other()", "one = two = 1\ndef other():\n    return one"),
        kernel("global two\ntwo = 2\nreturn x * other()", "one = two = 1\ndef other():\n    return one"),
    ),
    "a local that hides a builtin": (kernel("max = min\nreturn max(x, -x)"), kernel("most = min\nreturn max(x, -x)")),
    "a local that hides a global": (
        kernel("scale = 2\nreturn x * scale", "scale = size = 1"),
        kernel("size = 2\nreturn x * scale", "scale = size = 1"),
    ),
    "a star import": (
        kernel("e = 2\nreturn x * pi", "from math import *"),
        kernel("pi = 2\nreturn x * pi", "from math import *"),
    ),
    "a keyword": (
        kernel("return half(x, up=1)", "def half(x, up=0, down=0):\n    return x * (1 + up - down)"),
        kernel("return half(x, down=1)", "def half(x, up=0, down=0):\n    return x * (1 + up - down)"),
    ),
    "names as keywords": (
        kernel("return x * sum(dict(a=1).get(k, 0) for k in 'a')"),
        kernel("return x * sum(dict(b=1).get(k, 0) for k in 'a')"),
    ),
    "a local seen by locals()": (
        kernel('scale = 2\nreturn x * len("scale" in locals())'),
        kernel('size = 2\nreturn x * len("scale" in locals())'),
    ),
    "a local seen by eval": (kernel('a, b = 1, 2\nreturn x * eval("a")'), kernel('b, a = 1, 2\nreturn x * eval("a")')),
    "a local shown by a format": (
        kernel('scale = 2\nreturn x * len(f"{scale=}")'),
        kernel('scales = 2\nreturn x * len(f"{scales=}")'),
    ),
    "a local in another's expression": (
        kernel('a, b = 1, 2\nreturn x * numexpr.evaluate("a + 2 * b")', "import numexpr"),
        kernel('b, a = 1, 2\nreturn x * numexpr.evaluate("a + 2 * b")', "import numexpr"),
    ),
    "a local of a function's code": (
        kernel("scale = 2\nreturn x * len(self.forward.__code__.co_varnames[2])"),
        kernel("sc = 2\nreturn x * len(self.forward.__code__.co_varnames[2])"),
    ),
    "an attribute": (
        kernel("self.a = 1\nself.b = 2\nreturn x * self.a"),
        kernel("self.b = 1\nself.a = 2\nreturn x * self.a"),
    ),
    "an attribute of a class": (
        kernel("class C:\n    a = 1\n    b = 2\nreturn x * C.a"),
        kernel("class C:\n    b = 1\n    a = 2\nreturn x * C.a"),
    ),
    "an attribute by its name": (
        kernel('class C:\n    a = 1\n    b = 2\nreturn x * getattr(C, "a")'),
        kernel('class C:\n    a = 1\n    b = 2\nreturn x * getattr(C, "b")'),
    ),
    "a closure": (
        kernel("a, b = 1, 2\ndef inner():\n    nonlocal a\n    a = 3\ninner()\nreturn x * a"),
        kernel("a, b = 1, 2\ndef inner():\n    nonlocal b\n    b = 3\ninner()\nreturn x * a"),
    ),
    "a class in a function, whose method sees the function's variable": (
        kernel("a = 1\nb = 2\nclass C:\n    def f(self):\n        c = 3\n        return a\nreturn x * C().f()"),
        kernel("a = 1\nb = 2\nclass C:\n    def f(self):\n        c = 3\n        return c\nreturn x * C().f()"),
    ),
    "a class in a function, whose method has a variable of its own": (
        kernel("a = 1\nclass C:\n    def f(self):\n        b = 3\n        return b\nreturn x * C().f() * a"),
        kernel("a = 1\nclass C:\n    def f(self):\n        b = 3\n        return a\nreturn x * C().f() * a"),
    ),
    "an exception's name": (
        kernel("a = 1\ntry:\n    f()\nexcept NameError as a:\n    pass\nreturn x * a"),
        kernel("a = 1\ntry:\n    f()\nexcept NameError as b:\n    pass\nreturn x * a"),
    ),
    "two locals that are one": (kernel("a = 1\nb = 2\nreturn x * a"), kernel("a = 1\na = 2\nreturn x * a")),
    "a docstring that a pattern sees": (
        kernel("match f:\n    case object(__doc__=text):\n        return x * len(text)", 'def f():\n    """a"""'),
        kernel("match f:\n    case object(__doc__=text):\n        return x * len(text)", 'def f():\n    """ab"""'),
    ),
    "a docstring that a metaclass sees": (
        kernel("return x * C.n", 'class C(metaclass=M):\n    """a"""'),
        kernel("return x * C.n", 'class C(metaclass=M):\n    """ab"""'),
    ),
    "native code that asks the interpreter": (
        changed(CUDA, ("// where", "PyEval_GetLocals(); // where")),
        changed(CUDA, ("// where", "PyEval_GetLocals(); // there")),
    ),
    "a number's kind": (kernel("return x * 1"), kernel("return x * 1.0")),
    "a truth": (kernel("return x * 1"), kernel("return x * True")),
    "a sign": (kernel("return x * 0.0"), kernel("return x * -0.0")),
    "bytes": (kernel('return x * len("a")'), kernel('return x * len(b"a")')),
    "lines that are counted": (
        kernel("import sys\nreturn x * sys._getframe().f_lineno"),
        kernel("import sys\n\nreturn x * sys._getframe().f_lineno"),
    ),
    "a file that reads itself": (
        kernel("return x * len(open(__file__).read())  # one"),
        kernel("return x * len(open(__file__).read())  # other"),
    ),
    "a file that reads itself by another way": (
        kernel('from pathlib import Path\nreturn x * len(Path("candidate.py").read_text())  # one'),
        kernel('from pathlib import Path\nreturn x * len(Path("candidate.py").read_text())  # other'),
    ),
    "TorchScript, which reads a comment": (
        kernel("return f(x)", "@torch.jit.script\ndef f(x):\n    # type: (int) -> int\n    return x"),
        kernel("return f(x)", "@torch.jit.script\ndef f(x):\n    # type: (Tensor) -> Tensor\n    return x"),
    ),
    "how the file is read": (
        "# coding: latin-1\n" + kernel('return x * len("é")'),
        "# coding: utf-8\n" + kernel('return x * len("é")'),
    ),
    "what is no Python": ("def f(:  # one\n", "def f(:  # other\n"),
    "native code that is counted": (
        changed(CUDA, ("functions=", "n=len(SOURCE), functions=")),
        changed(CUDA, ("functions=", "n=len(SOURCE), functions="), ("// where", "// there")),
    ),
    "native code put together": (
        changed(CUDA, ("[SOURCE]", "[SOURCE + ';']")),
        changed(CUDA, ("[SOURCE]", "[SOURCE + ';']"), ("// where", "// whe")),
    ),
    "native code for another's function": (
        changed(CUDA, ("from torch.utils.cpp_extension import load_inline", "from mine import load_inline")),
        changed(
            CUDA,
            ("from torch.utils.cpp_extension import load_inline", "from mine import load_inline"),
            ("// where", ""),
        ),
    ),
    "native code for a function of that name": (
        changed(CUDA, ("SOURCE = r", "def load_inline(**words):\n    return words\n\nSOURCE = r")),
        changed(CUDA, ("SOURCE = r", "def load_inline(**words):\n    return words\n\nSOURCE = r"), ("// where", "")),
    ),
    "native code that is assigned twice": (
        changed(CUDA, ("BINDINGS = ", "SOURCE = SOURCE[:-9]\nBINDINGS = ")),
        changed(CUDA, ("BINDINGS = ", "SOURCE = SOURCE[:-9]\nBINDINGS = "), ("// where", "")),
    ),
    "a loader that was exchanged": (
        changed(
            CUDA,
            ("import load_inline", "import load_inline\nimport torch.utils.cpp_extension as c\nc.load_inline = len"),
        ),
        changed(
            CUDA,
            ("import load_inline", "import load_inline\nimport torch.utils.cpp_extension as c\nc.load_inline = len"),
            ("// where", ""),
        ),
    ),
    "native code that reads its file": (
        changed(CUDA, ("// where", 'fopen("candidate.py", "r"); // where')),
        changed(CUDA, ("// where", 'fopen("candidate.py", "r"); // there')) + "# x\n",
    ),
}


@pytest.mark.parametrize("name", LOOKALIKES)
def test_two_that_may_behave_differently_are_never_one(name: str) -> None:
    one, other = LOOKALIKES[name]
    assert one != other
    assert canonical_id(one) != canonical_id(other)
    assert canonical_id(one) == canonical_id(one)


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


# ---- shells ---------------------------------------------------------------------------------------------------------


def test_a_shell_is_what_no_compiler_sees() -> None:
    shell = shell_of(CUDA)
    assert shell is not None
    form, texts = shell
    assert [text.strip().splitlines()[0] for text in texts] == [
        "#include <cuda.h>  // the driver",
        "void launch(torch::Tensor x);",
    ]
    assert "blockIdx" not in form
    rewritten = changed(CUDA, ("2.0f * x[at]", "x[at] + x[at]"), ("// where", "// there"))
    other = shell_of(rewritten)
    assert other is not None
    assert (other[0], other[1] == texts) == (form, False)
    assert shell_of(changed(CUDA, ("        return LIB", "        # twice\n        return LIB"))) == shell


@pytest.mark.parametrize(
    "change",
    [
        ('functions=["launch"]', 'functions=["launch"], extra_cuda_cflags=["-O1"]'),
        ("return LIBRARY.launch(x)", "return LIBRARY.launch(x.clone())"),
        ('name="twice"', 'name="thrice"'),
    ],
)
def test_a_shell_holds_everything_else(change: tuple[str, str]) -> None:
    one, other = shell_of(CUDA), shell_of(changed(CUDA, change))
    assert one is not None
    assert other is not None
    assert one[0] != other[0]


@pytest.mark.parametrize(
    "source",
    [
        TRITON,
        changed(CUDA, ("class ModelNew", "SIZE = len(SOURCE)\n\n\nclass ModelNew")),
        changed(CUDA, ("class ModelNew", "OWN = open(__file__).read()\n\n\nclass ModelNew")),
        changed(CUDA, ("#include <cuda.h>", "#include <fstream>")),
        "no Python (",
    ],
)
def test_where_a_text_may_be_seen_by_others_there_is_no_shell(source: str) -> None:
    shell = shell_of(source)
    assert shell is None or not any("blockIdx" in text for text in shell[1])


def test_every_starting_kernel_in_native_code_has_a_shell() -> None:
    files = [file for name in builtin_names() for device in ("cpu", "cuda") for file in seed_files(name, device)]
    native = [file for file in files if "triton" not in file.name]
    assert len(native) > 5
    assert [file for file in native if shell_of(file.read_text()) is None] == []
