import time
from textwrap import indent

import pytest

from kbevolve.evolve.proposers.codegen.edits import Edit, apply_edits, parse_edits, read_answer
from kbevolve.evolve.proposers.codegen.whole_file import AnswerError, checked, whole_file

PARENT = """import torch

BLOCK = 64  # tune: 32, 64


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = x + 1
        y = y * 2
        return y
"""
CHILD = PARENT.replace("y * 2", "y * 3")


def block(search: str, replace: str) -> str:
    return f"<<<<<<< SEARCH\n{search}\n=======\n{replace}\n>>>>>>> REPLACE\n"


EDIT = block("        y = y * 2", "        y = y * 3")


@pytest.mark.parametrize(
    "answer",
    [
        EDIT,
        f"I multiply by three.\n\n{EDIT}\nThat is all.",
        f"```python\n{EDIT}```",
        f"```diff\n{EDIT}```\n",
        EDIT.replace("\n", "\r\n"),
        block("        y = y * 2   ", "        y = y * 3"),
        block("\n        y = y * 2\n", "        y = y * 3"),
        block("y = y * 2", "y = y * 3"),
        block("            y = y * 2", "            y = y * 3"),
        block("```python\n        y = y * 2\n```", "```python\n        y = y * 3\n```"),
        EDIT.replace("<<<<<<< SEARCH", "<<<<<< search").replace(">>>>>>> REPLACE", ">>>>>>> REPLACE (block 1)"),
        block("y = x + 1\ny = y * 2", "y = x + 1\ny = y * 3"),
        f"```python\n{PARENT}```\n{EDIT}",
        indent(EDIT, "    "),
        indent(f"1. So:\n```diff\n{EDIT}```\n", "\t"),
        f"```markdown\n```diff\n{EDIT}```\n```",
        indent(f"```python\n{PARENT}```\n{EDIT}".replace("\n", "\r\n"), "  "),
        EDIT + "Once more, all of it:\n" + EDIT,
    ],
    ids=[
        "plain", "prose", "fence", "diff fence", "crlf", "trailing blanks", "blank borders", "indentation lost",
        "indentation added", "fences inside", "other markers", "two lines unindented", "parent quoted before",
        "answer indented", "answer indented by a tab", "fence in a fence", "parent quoted before, crlf, indented",
        "said twice",
    ],
)  # fmt: skip
def test_an_edit_is_found_and_applied(answer: str) -> None:
    found = read_answer(answer, PARENT)
    assert found.source == CHILD
    assert found.edits == 1


def test_the_parent_may_have_crlf_line_ends() -> None:
    assert read_answer(EDIT, PARENT.replace("\n", "\r\n")).source == CHILD


def test_several_blocks_are_applied_in_order() -> None:
    answer = EDIT + block("BLOCK = 64  # tune: 32, 64", "BLOCK = 32  # tune: 32, 64") + block("y = y * 3", "y = y * 4")
    found = read_answer(answer, PARENT)
    assert found.source == PARENT.replace("y * 2", "y * 4").replace("BLOCK = 64 ", "BLOCK = 32 ")
    assert found.edits == 3


def test_only_the_matched_lines_change() -> None:
    assert apply_edits("a\n\n b\n\tc  \n", [Edit(search=(" b",), replace=())]) == "a\n\n\tc  \n"


def test_a_shift_keeps_the_inner_indentation() -> None:
    source = "class A:\n    def f(self):\n        if x:\n            y()\n"
    edit = Edit(search=("if x:", "    y()"), replace=("if x:", "    for z in w:", "", "        z()"))
    assert apply_edits(source, [edit]) == (
        "class A:\n    def f(self):\n        if x:\n            for z in w:\n\n                z()\n"
    )


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (block("        y = y * 7", "z"), ["block 1", "not in the file", "`y = y * 7`", "line 9: `y = y * 2`"]),
        (EDIT + block("nonsense entirely", "z"), ["block 2", "No line reads `nonsense entirely`."]),
        (block("", "z"), ["block 1", "empty SEARCH"]),
        ("<<<<<<< SEARCH\n        y = y * 2\n=======\n", ["block 1", "not closed"]),
        ("<<<<<<< SEARCH\nx\n>>>>>>> REPLACE\n", ["block 1", "no ======="]),
        ("<<<<<<< SEARCH\nx\n=======\ny\n" + EDIT, ["block 1", "not closed"]),
        (block("        y = x + 1\n        return y", "z"), ["block 1", "not one after another"]),
        (block("        y = y * 2", "        y = y * ("), ["not Python", "line 9"]),
        (block("class ModelNew(torch.nn.Module):", "class Other:"), ["no class ModelNew"]),
    ],
)
def test_a_broken_edit_says_which_and_why(answer: str, words: list[str]) -> None:
    with pytest.raises(AnswerError) as caught:
        read_answer(answer, PARENT)
    for word in words:
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_ambiguous_edit_is_refused_with_its_places() -> None:
    twice = PARENT.replace("y = y * 2", "y = x + 1")
    with pytest.raises(AnswerError, match=r"block 1.*`y = x \+ 1`.*2 times \(lines 8, 9\)"):
        read_answer(block("        y = x + 1", "z"), twice)


def test_a_looser_match_does_not_resolve_an_ambiguous_exact_match() -> None:
    with pytest.raises(AnswerError, match="2 times"):
        apply_edits("a\nb\na\n", [Edit(search=("a",), replace=("c",))])


def test_uneven_shifts_do_not_match() -> None:
    with pytest.raises(AnswerError, match="not one after another"):
        apply_edits("  a\n      b\n", [Edit(search=("a", "b"), replace=("c",))])


def test_an_answer_without_edits_has_none() -> None:
    assert parse_edits("prose\n=======\nmore") == ()


@pytest.mark.parametrize(
    "answer",
    [
        f"```python\n{CHILD}```",
        f"Here:\n\n```py\n{CHILD}\n```\nDone.",
        f"```\n{CHILD}```",
        f"~~~python\n{CHILD}~~~",
        f"````python\n{CHILD}````",
        CHILD,
        f"The old one:\n```python\n{PARENT}```\nThe new one:\n```python\n{CHILD}```",
        f"```python\n{CHILD}```\nUse it so:\n```python\nclass ModelNew: ...\n```",
        f"```python\n{CHILD}```\n```bash\npip install nothing\n```",
        f"```python\n{CHILD}```".replace("\n", "\r\n"),
        "1. The file:\n" + "\n".join(f"   {line}" for line in f"```python\n{CHILD}```".split("\n")),
        f"```python\n{CHILD}",
        f"```python\nclass ModelNew(\n```\n```python\n{CHILD}```",
        f"```markdown\nHere:\n```python\n{CHILD}```\nDone.\n```",
        f"````markdown\nHere:\n```python\n{CHILD}```\n````",
        f"```\n```python\n{CHILD}```\n```",
        f"```markdown\nOld:\n```python\n{PARENT}```\nNew:\n```python\n{CHILD}```\n```",
        f"````markdown\nOld:\n```python\n{PARENT}```\nNew:\n```python\n{CHILD}```\n````",
        indent(CHILD, "    "),
        "```python\n" + indent(CHILD, "\t") + "```",
        indent(f"Old:\n```python\n{PARENT}```\nNew:\n```python\n{CHILD}```", "    "),
        indent(f"Old:\n```python\n{PARENT}```\nNew:\n```python\n{CHILD}```", "    ").replace("\n", "\r\n"),
        f"```python\n{CHILD}```".replace("\n", "\r"),
        "\ufeff" + CHILD,
    ],
    ids=[
        "fence", "py, prose", "no language", "tildes", "four ticks", "bare", "old one first", "usage after",
        "shell after", "crlf", "in a list", "fence left open", "false start", "fence in a fence",
        "fence in a longer fence", "fence in a bare fence", "old one first, in a fence",
        "old one first, in a longer fence", "bare, indented", "indented by a tab", "old one first, indented",
        "old one first, indented, crlf", "cr", "byte order mark",
    ],
)  # fmt: skip
def test_a_whole_file_is_found(answer: str) -> None:
    assert whole_file(answer) == CHILD


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("I would use larger tiles.", "no code"),
        ("```python\nx = 1\n```", "no code block of the answer defines class ModelNew"),
        ("```python\nclass ModelNew:\n  def f(:\n```", "line 2, `def f(:`"),
        ("```python\nif x:\n    class ModelNew: pass\n```", "at the top level"),
        ("", "no code"),
    ],
)
def test_an_answer_without_a_file_is_an_error(answer: str, words: str) -> None:
    with pytest.raises(AnswerError) as caught:
        whole_file(answer)
    assert words in str(caught.value)


@pytest.mark.parametrize("quoted", ["```python\nModelNew()(x)\n```", "```\nModelNew()(x)\n```", "~~~\nx\n~~~"])
def test_a_docstring_may_quote_code(quoted: str) -> None:
    child = f'"""Use it so:\n\n{quoted}\n"""\n\n{CHILD}'
    assert whole_file(f"Here it is:\n```python\n{child}```\nDone.") == child


def test_many_fences_do_not_take_long() -> None:
    answer = "```python\nclass ModelNew(\n" * 4000 + "```\n" * 4000
    started = time.monotonic()
    with pytest.raises(AnswerError):
        whole_file(answer)
    assert time.monotonic() - started < 5


def test_blank_lines_are_kept() -> None:
    child = CHILD.replace("BLOCK", 'TEXT = """\n   \n"""\nBLOCK', 1)
    assert whole_file(f"```python\n{child}```") == child


@pytest.mark.parametrize("kept", ["    def forward(self, x):\n        y = x", "    def forw", "    pass\n"])
def test_an_open_fence_with_half_a_kernel_is_a_truncated_answer(kept: str) -> None:
    """Also when the endpoint does not say so, and the text is Python by chance."""
    with pytest.raises(AnswerError, match="not closed, the answer seems to be cut short"):
        read_answer(f"```python\nimport torch\n\n\nclass ModelNew(torch.nn.Module):\n{kept}", PARENT)


@pytest.mark.parametrize("truncated", [True, False])
def test_the_quoted_old_file_does_not_replace_a_truncated_new_one(truncated: bool) -> None:
    cut = CHILD[: CHILD.index("        return")]
    with pytest.raises(AnswerError, match="quotes the old file and is cut short"):
        read_answer(f"Old:\n```python\n{PARENT}```\nNew:\n```python\n{cut}", PARENT, truncated=truncated)
    assert read_answer(f"```python\n{PARENT}```", PARENT).source == PARENT, "a duplicate, but a whole one"


def test_the_file_to_repair_need_not_be_python() -> None:
    assert read_answer(f"```python\n{CHILD}", "class ModelNew(").source == CHILD


def test_a_truncated_file_is_refused() -> None:
    cut = f"```python\n{PARENT}"
    assert whole_file(cut) == PARENT
    for answer in (cut, PARENT):
        with pytest.raises(AnswerError):
            whole_file(answer, truncated=True)


def test_a_whole_file_instead_of_edits_is_accepted() -> None:
    broken = block("not there", "x")
    assert read_answer(f"{broken}\n```python\n{CHILD}```", PARENT).source == CHILD
    assert read_answer(f"```python\n{CHILD}```", PARENT).edits == 0


def test_edits_without_a_base_are_not_applied() -> None:
    with pytest.raises(AnswerError, match="no code"):
        read_answer(EDIT, None)


@pytest.mark.parametrize("source", ["class ModelNew: x = '\0'", "class ModelNew: x = " + "(" * 500 + ")" * 500])
def test_strange_sources_do_not_crash_the_parser(source: str) -> None:
    with pytest.raises(AnswerError):
        checked(source)


def test_a_warning_about_a_childs_source_is_not_raised() -> None:
    """With warnings as errors, an invalid escape would be a SyntaxError."""
    source = 'class ModelNew:\n    x = "\\d"\n'
    assert checked(source) == source
    open_block = f"```python\n{source}\n    def forward(self, x):\n        return x"
    assert whole_file(open_block).startswith(source)
