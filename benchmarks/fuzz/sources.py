"""Hostile kernel files and answers: everything of ours that reads a text which a model or a stranger wrote."""

import contextlib
import random
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from kbevolve.archive.records import Kernel
from kbevolve.configs.playbook import load_playbook
from kbevolve.evaluators.feedback.failures import failure_of
from kbevolve.evaluators.lint.process import LintProcess
from kbevolve.evaluators.lint.streams import may_use_several
from kbevolve.evolve.proposers.codegen.edits import read_answer
from kbevolve.evolve.proposers.codegen.ideas import parse_ideas
from kbevolve.evolve.proposers.codegen.whole_file import AnswerError
from kbevolve.evolve.proposers.tuning.tunables import skeleton
from kbevolve.islands.niches import describe
from kbevolve.islands.source.canonical import canonical_id, shell_of
from kbevolve.islands.source.similarity import shingles

SEEDS = sorted((Path(__file__).parents[2] / "configs" / "seeds").rglob("*.py"))
#: What is repeated, from a few to a million characters.
UNITS = (
    "/* ", "/", "// ", "(", "F(", "F();", '"""\\', "'''\\", "\\'", '\\"', "#include<", "#include<<<", "for ",
    "for (", "a[", "a;", "1,",
    "def f():\n  pass\n", "a\n", "@a\n", "elif a: pass\n", ".b", "()", "+a", "-", "not ", "**1", "lambda:",
    "a if b else ", "{a}", "'a' ",
    "'a'+", "9", "f", "\ud800", "\0", "\r", "\f", "\ufeff", "\\\n", " \t", "if a:\n b\n", "#if (\n", "#if a\n",
    "#else\n", "static ",
    "using a=b;", "a b(", "* ", "a::", "a##b ", 'R"x(', "#", "'", '"', " ", "v=v+v\n", '.replace("a","aa")',
    "global a\n", "import a\n",
    "class A(A):\n  def forward(self): pass\n", "try:\n a\nexcept: b\n", "a=", "(a:=", "<a", " and a", "[0]",
    "1:2,", "<<<<<<< SEARCH\n",
    "=======\n", ">>>>>>> REPLACE\n", "```\n", "```` \n", "~~~", "a=1,", "\u00e9", "\u0430=1\n", "1e5 ", ".",
    "a&&", "defined(a)",
    'asm("', "int const ", "BLOCK = 1  # tune: 1, ", "IDEA:", "{\"title\": \"", '{"a":[', "exec(", "getattr(a,",
    "x = 4  # tune: ",
)  # fmt: skip
FRAMES = (
    "{}", "x = {}", "S = r'''\n{}\n;}}'''\n", "S = r'''#define F(x) x x\n{}\n'''\n",
    "S = r'''#if {}\n1\n#endif;'''\n", "f'{}'", "({})",
    "class ModelNew:\n  def forward(self, x):\n    return {}\n", "```python\n{}\n```",
    "<<<<<<< SEARCH\na\n=======\n{}\n>>>>>>> REPLACE\n",
    "from torch.utils.cpp_extension import load_inline\nload_inline(name='x', cpp_sources='''{}\n''')\n",
    "exec('''{}''')\n",
)  # fmt: skip


def run(seeds: range) -> Iterator[tuple[int, str]]:
    """Each seed, and whether its file was read or why it was refused."""
    playbook = load_playbook()
    with closing(LintProcess()) as lint:
        for seed in seeds:
            text = hostile(random.Random(seed))
            kernel = Kernel.from_source(text)
            found = lint.lint(text, reference_source=text[:2000])
            for read in _READERS:
                read(kernel)
            for answer in (text, f"```python\n{text}\n```"):
                parse_ideas(answer, playbook, proposed_by="fuzz")
                with contextlib.suppress(AnswerError):
                    read_answer(answer, SEEDS[0].read_text())
            words = found.refusal.split(":")
            yield seed, "read" if not found.refusal else ":".join(words[: 2 if words[0] == "not accepted" else 1])[:60]
        honest = SEEDS[0].read_text()
        assert not lint.lint(honest).refusal, "an honest file is read as before"


_READERS: tuple[Callable[[Kernel], object], ...] = (
    describe,
    lambda kernel: canonical_id(kernel.source),
    lambda kernel: shell_of(kernel.source),
    lambda kernel: shingles(kernel.source),
    lambda kernel: skeleton(kernel.source),
    lambda kernel: may_use_several(kernel.source, ()),
    lambda kernel: failure_of({"stage": "build", "text": kernel.source}, kernel.source),
    lambda kernel: failure_of({"stage": "call", "text": kernel.source, "type": kernel.source}, kernel.source),
)


def hostile(choose: random.Random) -> str:
    """A file: mostly small, some of 100 kB, a few beyond what is read."""
    kind = choose.random()
    if kind < 0.5:
        return _repeated(choose)
    if kind < 0.9:
        return _mutated(choose)
    return choose.randbytes(choose.randrange(2000)).decode("latin-1")


def _repeated(choose: random.Random) -> str:
    size = int(
        10 ** choose.choices((choose.uniform(1, 3.5), choose.uniform(3.5, 5), choose.uniform(5, 6.05)), (940, 57, 3))[0]
    )
    units = choose.choices(UNITS, k=choose.choice((1, 1, 1, 2, 3)))
    body = "".join(units)
    body = (body * (size // len(body) + 1))[:size]
    return choose.choice(FRAMES).format(body)


def _mutated(choose: random.Random) -> str:
    """A starting kernel with parts exchanged, doubled, cut out and replaced."""
    text = choose.choice(SEEDS).read_text()
    for _ in range(choose.randint(1, 8)):
        start = choose.randrange(len(text) + 1)
        end = min(len(text), start + int(10 ** choose.uniform(0, 3)))
        part = choose.choice(("", text[start:end] * 2, choose.choice(UNITS) * choose.randint(1, 40), _other(choose)))
        text = text[:start] + part + text[end:]
    return text


def _other(choose: random.Random) -> str:
    other = choose.choice(SEEDS).read_text()
    start = choose.randrange(len(other))
    return other[start : start + choose.randrange(2000)]
