"""What an engine or a judge reads of a hostile file takes time linear in it, and raises nothing."""

import time

import pytest

from kbevolve.archive.records import Backend, Kernel
from kbevolve.evaluators.feedback.failures import failure_of
from kbevolve.evolve.proposers.codegen.edits import read_answer
from kbevolve.evolve.proposers.codegen.whole_file import MOST_ANSWER, AnswerError
from kbevolve.evolve.proposers.tuning.tunables import declared
from kbevolve.islands.niches import describe
from kbevolve.islands.source.active_code import active_code
from kbevolve.islands.source.canonical import canonical_id, shell_of
from kbevolve.islands.source.similarity import shingles
from kbevolve.islands.source.tree import MOST_READ

SIZE = 60_000


def native(text: str) -> str:
    return f"S = r'''\n{text}\n;'''\n"


TEXTS = {
    "unfinished comments": native("/*" * (SIZE // 2)),
    "unfinished texts": '"""\\' * (SIZE // 4),
    "quoted quotes": native("\\'" * (SIZE // 2)),
    "quotes on one line": '"\\' * (SIZE // 2),
    "includes": native("#include" + "<" * SIZE),
    "words of a loop": "for " * (SIZE // 4),
    "open launches": "a[" * (SIZE // 2),
    "texts between statements": '"""\n"""\nx=1\n' * (SIZE // 12),
    "lines and no statement": "S = '''" + "\n" * SIZE + "'''",
    "conditions": native("#if a\n" * (SIZE // 6)),
    "a deep condition": native("#if " + "-" * SIZE + "1"),
    "an open condition": native("#if " + "(" * SIZE),
    "a number of a condition": native(f"#define A {'9' * SIZE}\n#if A*A\n#endif"),
    "large products": f"A = 0x{'f' * (SIZE // 2)}\nif {'A*' * 200}1: pass\n" + native("#if " + "7*" * 200 + "1"),
    "a NUL in a condition": native("#if \0"),
    "a long number": "x = 0x" + "f" * SIZE,
    "half a character": "x = '\ud800'\n" * 100,
    "nested choices": "if a: pass\n" + "elif a: pass\n" * (SIZE // 13),
    "nested signs": "x = " + "-" * SIZE + "1",
    "nested attributes": "x = a" + ".b" * (SIZE // 2),
    "an f-string": "x = f'" + "{a}" * (SIZE // 12) + "'",
    "too much": "x = 1\n" * (MOST_READ // 4),
    "blanks before an end": "x = 4  # tune: 1, 2" + " " * SIZE + "\n# tune",
    "ticks": "~" * SIZE + "`",
    "blanks and a tick": "```" + " " * SIZE + "`",
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if number % 3 else ()) for number, name in enumerate(TEXTS)]
)
def test_every_reader_comes_to_an_end(name: str) -> None:
    text = TEXTS[name]
    start = time.process_time()
    kernel = Kernel.from_source(text)
    active_code(text)
    assert canonical_id(text) == canonical_id(text)
    shell_of(text)
    shingles(text)
    declared(text)
    for backend in Backend:
        describe(Kernel(id=kernel.id, backend=backend, source=text))
    for stage in ("build", "call"):
        failure_of({"stage": stage, "text": text, "type": text, "frames": [{"code": text}]}, text)
    for answer in (text, f"```python\n{text}\n```"):
        with pytest.raises(AnswerError):
            read_answer(answer, "x = 1\n")
    assert time.process_time() - start < 5.0


def test_a_file_that_is_too_long_is_its_own_form() -> None:
    one, other = ("x = 1\n" * MOST_READ + f"# {number}\n" for number in (1, 2))
    assert canonical_id(one) != canonical_id(other)
    assert Kernel.from_source("x = 1  # a") == Kernel.from_source("x = 1  # a")
    assert Kernel.from_source(one * 2).id != Kernel.from_source(other * 2).id
    assert shell_of(one) is None


def test_an_answer_that_is_too_long_is_not_read() -> None:
    with pytest.raises(AnswerError, match="at most"):
        read_answer("class ModelNew:\n    pass\n" + "#" * MOST_ANSWER, None)
