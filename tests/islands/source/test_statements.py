"""What is read of a file piece by piece is what is read of the whole."""

import ast
from pathlib import Path
from random import Random

import pytest

from kbevolve.configs.catalog import builtin_names
from kbevolve.configs.seeds import seed_files
from kbevolve.islands.source import active_code, canonical
from kbevolve.islands.source.statements import pieces

ROOT = Path(__file__).parents[3]

SEEDS = [file for name in builtin_names() for device in ("cuda", "cpu") for file in seed_files(name, device)]
FILES = sorted({*SEEDS, *(ROOT / "tests" / "hacks").rglob("*.py"), *(ROOT / "benchmarks" / "throughput").rglob("*.py")})

DECORATED = """import torch
@torch.no_grad()
@torch.jit.ignore(
    drop=True,
)
def f(x):
    y = x
    return y
async def g(x):
    y = [z for z in x]
    return y
if torch:
    A = 1
else:
    A = 2
try:
    B = 1
except ValueError:
    B = 2
finally:
    C = 3
class D:
    def f(self, x):
        y = x
        def inner(z=y):
            w = z
            return w
        return inner
"""
ODD = (
    "",
    "\n",
    "'only a docstring'\n",
    "\nr'only a docstring'\n",
    "'a docstring'\nx = 1\n'and another text'\ny = 2\n",
    "x = 1; y = 2\n",
    "x = (1,\n2)\ny = x\n",
    "x = 1 + \\\n2\ny = x\n",
    "x = 1 + \\\ny\n",
    'x = """\ny = 1\n"""\n',
    'x = """\ny = 1\n""" + """\nz = 2\n"""\n',
    'x = """\na\\"""\nb\n"""\ny = 1\n',
    "x = 1  # it's three: '''\ny = 2\nz = 3  # '''\n",
    'x = \'"""\'\ny = 2\nz = \'"""\'\nw = 1\n',
    "if x:\n    pass\nelse:\n    y = 1\nz = 2\n",
    "@f\ndef g(x):\n    y = x\n    return y\n",
    "@f\nx = 1\n",
    "def f(x):\n    y = x\n    return y\ny = 1\n",
    "def f(x):\n    y = x\n    return y\nname = 'y'\n",
    "def f(x):\n    y = x\n    return y\nfrom z import *\n",
    "def f(x):\n    eval('x')\n    y = x\n    return y\nz = 1\n",
    "for x in y:\n    z = x\nelse:\n    w = 1\n",
    "def broken(:\n    pass\nx = 1\n",
    "# coding: latin-1\nx = 1\ny = 2\n",
    "match x:\n    case 1:\n        y = 1\n    case _:\n        y = 2\nz = 1\n",
    "x = lambda y: y\nwith x as z:\n    w = z\n",
    "global x\nx = 1\n",
    DECORATED,
)


#: What is put into files at random: it opens, closes or continues something.
SPLINTERS = (
    *('"""', "'''", '"', "'", "\\\n", "(", ")", "#", "\n", ";", "@f\n", "else:\n", "    ", "\f", "async "),
    *("def f(y):\n    z = y\n    return z\n", "from q import *\n", "eval('x')\n", "'doc'\n", "X = 0\n"),
)


def mangled(text: str, rng: Random) -> str:
    """A text with some lines lost, exchanged, or broken."""
    lines = text.splitlines(keepends=True)
    for _ in range(rng.randint(1, 3)):
        at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
        match rng.randrange(3):
            case 0:
                lines[at], lines[other] = lines[other], lines[at]
            case 1:
                lines[at] = ""
            case _:
                cut = rng.randint(0, len(lines[at]))
                lines[at] = lines[at][:cut] + rng.choice(SPLINTERS) + lines[at][cut:]
    return "".join(lines)


@pytest.mark.parametrize("text", [*(file.read_text() for file in FILES), *ODD])
def test_a_file_in_pieces_has_the_form_of_the_whole(text: str) -> None:
    check(text)


@pytest.mark.filterwarnings("ignore::SyntaxWarning", "ignore::DeprecationWarning")
def test_a_mangled_file_has_it_too() -> None:
    rng = Random(0)
    texts = [file.read_text() for file in FILES if file.stat().st_size < 4000]
    for _ in range(1000):
        check(mangled(rng.choice(texts), rng))


def check(text: str) -> None:
    assert "".join(pieces(text)) == text
    assert canonical.canonical_form(text) == canonical._whole_form(text)
    lines = [line for line in active_code.live_text(text).python.splitlines() if line]
    try:
        whole = active_code._put_together([text])
    except SyntaxError:
        return
    assert lines == [line for line in whole.python.splitlines() if line]
    assert active_code.live_text(text).native == whole.native


def test_statements_are_cut_apart_with_their_decorators() -> None:
    cut = pieces(DECORATED)
    assert [len(ast.parse(piece).body) for piece in cut] == [1] * 6
    assert cut[1].startswith("@torch.no_grad()\n@torch.jit")
    assert cut[4].endswith("C = 3\n")


def test_most_of_a_tuned_child_is_not_read_again() -> None:
    (file,) = (file for file in seed_files("L1/gelu", "cuda") if "triton" in file.name)
    text = file.read_text()
    canonical.canonical_form(text)
    before = canonical._told_alone.cache_info()
    for number in range(5):
        canonical.canonical_form(f"{text}\nNUMBER = {number}\n")
    after = canonical._told_alone.cache_info()
    assert after.misses - before.misses <= 2 * 5
    assert after.hits - before.hits >= 5 * (len(pieces(text)) - 1)
