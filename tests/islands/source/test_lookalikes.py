"""Kernels that look alike and may behave differently never have the same form."""

import pytest

from kbevolve.islands.source.canonical import canonical_id
from tests.islands.source.test_canonical import CUDA, changed


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
