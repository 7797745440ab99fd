"""Parsing models' answers: edits and files come back as they were written, and no text makes a parser crash."""

import re

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kbevolve.configs.playbook import load_playbook
from kbevolve.evolve.proposers.codegen.code_blocks import CodeBlock, code_blocks
from kbevolve.evolve.proposers.codegen.edits import Edit, apply_edits, parse_edits, read_answer
from kbevolve.evolve.proposers.codegen.ideas import parse_ideas
from kbevolve.evolve.proposers.codegen.whole_file import AnswerError, whole_file

reproducible = settings(max_examples=80, deadline=None, derandomize=True, database=None)

#: Lines of code, without fences and markers.
LINE = st.text(alphabet="ab1 \t():#.", max_size=12)
LINES = st.lists(LINE, max_size=12)

#: What answers are made of, in any order.
PARTS = st.sampled_from(
    [
        "<<<<<<< SEARCH", "=======", ">>>>>>> REPLACE", "```python", "```", "````", "~~~", "  ```py", "y = 1",
        "    y = 1", "class ModelNew:", "    def forward(self):", "        return 1", "\r", "\x00", "\ufeff", "\ud800",
        "prose", '"""', '[{"title": "Tiles", "expected_gain": "1e999"', "}]", "{", "[",
        '{"title": ["a"]}', "{'title': 'b',}",
    ]
)  # fmt: skip
ANSWERS = st.one_of(st.text(max_size=60), st.lists(PARTS, max_size=14).map("\n".join))


def written(edit: Edit) -> str:
    """An edit as a model writes it."""
    return "\n".join(["<<<<<<< SEARCH", *edit.search, "=======", *edit.replace, ">>>>>>> REPLACE", ""])


@reproducible
@given(before=LINES, search=LINES, replace=LINES, after=LINES)
def test_a_known_replacement_gives_the_known_text(
    before: list[str], search: list[str], replace: list[str], after: list[str]
) -> None:
    source = [*before, *search, *after]
    places = [at for at in range(len(source)) if source[at : at + len(search)] == search]
    assume(any(line.strip() for line in search) and len(places) == 1)
    edit = Edit(search=tuple(search), replace=tuple(replace))
    assert parse_edits(f"So:\n{written(edit)}Done.") == (edit,)
    assert apply_edits("\n".join(source), [edit]) == "\n".join([*before, *replace, *after])


@reproducible
@given(body=LINES, indent=st.sampled_from(["", "  ", "\t"]), ticks=st.sampled_from(["```", "````", "~~~"]))
def test_fenced_code_comes_back(body: list[str], indent: str, ticks: str) -> None:
    fenced = "\n".join(indent + line for line in [f"{ticks}python", *body, ticks])
    assert code_blocks(f"Here:\n{fenced}\nDone.") == [CodeBlock(text="\n".join(body))]


@reproducible
@given(comments=LINES, prose=LINES)
def test_a_whole_file_comes_back(comments: list[str], prose: list[str]) -> None:
    source = "\n".join([f"# {line}" for line in comments] + ["class ModelNew:", "    x = 1", ""])
    assert whole_file("\n".join([*prose, "```python", source + "```", *prose])) == source


@reproducible
@given(answer=ANSWERS, base=st.one_of(st.none(), ANSWERS))
def test_any_answer_gives_a_kernel_or_one_complaint(answer: str, base: str | None) -> None:
    for truncated in (False, True):
        try:
            source = read_answer(answer, base, truncated=truncated).source
        except AnswerError:
            continue
        assert re.search(r"^class ModelNew", source, re.MULTILINE)


@reproducible
@given(answer=ANSWERS)
def test_any_answer_gives_a_list_of_ideas(answer: str) -> None:
    for idea in parse_ideas(answer, load_playbook(), proposed_by="m"):
        assert idea.title
        assert idea.expected_gain is None or 1 <= idea.expected_gain <= 1000
