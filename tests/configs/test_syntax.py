"""A text is parsed whatever other threads parse beside it."""

import ast
from collections.abc import Iterator

import pytest

from kbevolve.configs.syntax import expression, literal, parse
from kbevolve.islands.source.active_code import active_code


@pytest.fixture
def unlucky(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """`ast.parse` as it is in Python 3.11.7 when another thread interferes; the list says how often yet."""
    real, left = ast.parse, [2]

    def parse(source: str, mode: str = "exec") -> ast.AST:
        if left[0]:
            left[0] -= 1
            raise SystemError("AST constructor recursion depth mismatch (before=27, after=24)")
        return real(source, mode=mode)

    with monkeypatch.context() as patch:
        patch.setattr(ast, "parse", parse)
        yield left


def test_what_another_thread_did_is_no_fault_of_the_text(unlucky: list[int]) -> None:
    assert ast.dump(parse("x = 1")) == ast.dump(ast.parse("x = 1"))
    assert unlucky == [0]
    unlucky[0] = 2
    assert ast.unparse(expression("a + 1")) == "a + 1"
    assert unlucky == [0]
    unlucky[0] = 2
    assert literal(" (1, [2])") == literal(expression("(1, [2])")) == (1, [2])
    unlucky[0] = 1
    assert active_code("x = 1").python == "x = 1"
    assert unlucky == [0]


def test_what_is_wrong_with_the_text_is_reported(unlucky: list[int]) -> None:
    with pytest.raises(SyntaxError):
        parse("x = ")
    unlucky[0] = 99
    with pytest.raises(SystemError):
        parse("x = 1")


def test_what_is_no_expression_or_no_literal_is_reported() -> None:
    with pytest.raises(SyntaxError):
        expression("x = 1")
    with pytest.raises(SyntaxError):
        literal("(1,")
    with pytest.raises(ValueError, match="malformed"):
        literal("f(1)")
