"""A text is parsed whatever other threads parse beside it."""

import ast
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from kbevolve.configs.syntax import expression, literal, parse
from kbevolve.islands.source.active_code import active_code


def test_one_thread_parses_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.11.7 fails now and then where two threads build trees at the same time."""
    real, inside, most = ast.parse, [0], [0]

    def slow(source: str, mode: str = "exec") -> ast.AST:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        time.sleep(0.002)
        tree = real(source, mode=mode)
        inside[0] -= 1
        return tree

    monkeypatch.setattr(ast, "parse", slow)
    with ThreadPoolExecutor(4) as threads:
        trees = threads.map(parse, 8 * ["x = 1"])
        expressions = threads.map(expression, 8 * ["a + 1"])
        values = threads.map(literal, 8 * [" (1, [2])"])
        texts = threads.map(active_code, 8 * ["x = 1"])
        assert {ast.unparse(tree) for tree in trees} == {text.python for text in texts} == {"x = 1"}
        assert {ast.unparse(tree) for tree in expressions} == {"a + 1"}
        assert list(values) == 8 * [(1, [2])]
    assert most == [1]


def test_what_is_wrong_with_the_text_is_reported() -> None:
    with pytest.raises(SyntaxError):
        parse("x = ")
    with pytest.raises(SyntaxError):
        expression("x = 1")
    with pytest.raises(SyntaxError):
        literal("(1,")
    with pytest.raises(ValueError, match="malformed"):
        literal("f(1)")
    with pytest.raises(ValueError, match="braces"):
        parse("{" * 100_000)
    assert literal(expression("(1, [2])")) == (1, [2])
