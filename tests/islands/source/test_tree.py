"""Statements that are found by their text are those that the parser finds."""

import ast
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbevolve.configs.catalog import builtin_names
from kbevolve.configs.seeds import seed_files
from kbevolve.islands.source import tree

ROOT = Path(__file__).parents[3]
SEEDS = [file for name in builtin_names() for device in ("cuda", "cpu") for file in seed_files(name, device)]
FILES = sorted({*SEEDS, *(ROOT / "tests" / "hacks").rglob("*.py"), *(ROOT / "benchmarks" / "throughput").rglob("*.py")})

DECORATED = """import torch
@torch.no_grad()
@torch.jit.ignore(
    drop=True,
)
def f(x):
    return x
async def g(x):
    return [z for z in x]
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
    pass
"""
ODD = (
    *("", "\n", "'a docstring'\nx = 1\n'another text'\n", "x = 1; y = 2\n", "x = (1,\n2)\ny = x\n"),
    *("x = 1 + \\\n2\ny = x\n", "x = 1 + \\\ny\n", 'x = """\ny = 1\n"""\n', 'x = """\na\\"""\nb\n"""\ny = 1\n'),
    'x = """\ny = 1\n""" + """\nz = 2\n"""\n',
    "x = 1  # it's three: '''\ny = 2\nz = 3  # '''\n",
    'x = \'"""\'\ny = 2\nz = \'"""\'\nw = 1\n',
    "@f\nx = 1\n",
    "def broken(:\n    pass\nx = 1\n",
    "match x:\n    case 1:\n        y = 1\n    case _:\n        y = 2\nz = 1\n",
    "for x in y:\n    z = x\nelse:\n    w = 1\n",
    DECORATED,
)
#: They open, close or continue something.
SPLINTERS = (*('"""', "'''", '"', "'", "\\\n", "(", ")", "#", "\n", ";"), *("@f\n", "else:\n", "    ", "\f", "async "))


def check(text: str) -> None:
    """The statements, parsed one by one, are the file parsed whole."""
    try:
        whole = ast.parse(text)
    except (SyntaxError, ValueError):
        with pytest.raises((SyntaxError, ValueError)):
            tree.statements_of(text)
        return
    parts = [node for statement in tree.statements_of(text) for node in ast.parse(statement).body]
    assert [ast.dump(node) for node in parts] == [ast.dump(node) for node in whole.body]


@pytest.mark.parametrize("text", ODD)
def test_an_odd_file(text: str) -> None:
    check(text)


def test_all_kernels_here() -> None:
    for file in FILES:
        check(file.read_text())


@pytest.mark.filterwarnings("ignore::SyntaxWarning", "ignore::DeprecationWarning")
@settings(max_examples=300, deadline=None)
@given(st.sampled_from(ODD), st.lists(st.tuples(st.integers(0, 400), st.sampled_from(SPLINTERS)), min_size=1))
@pytest.mark.slow
def test_a_mangled_file(text: str, splinters: list[tuple[int, str]]) -> None:
    for at, splinter in splinters:
        text = text[:at] + splinter + text[at:]
    check(text)


def test_decorators_stay_with_their_function() -> None:
    statements = tree.statements_of(DECORATED)
    assert [len(ast.parse(statement).body) for statement in statements] == [1] * 6
    assert statements[1].startswith("@torch.no_grad()\n@torch.jit")


def test_a_statement_that_was_read_is_not_parsed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "".join(f"def f{number}(x):\n    return x\n" for number in range(20))
    tree.statements_of(text)
    parsed: list[str] = []

    def parse(source: str) -> ast.Module:
        parsed.append(source)
        return ast.parse(source)

    monkeypatch.setattr(tree, "parse", parse)
    tree.statements_of(text + "in_no_other_test = 1\n")
    assert parsed == ["in_no_other_test = 1\n"]
