import pytest
from markupsafe import Markup

from kbevolve.evolve.web.code import MOST_OF_A_LINE, changes, side_by_side, source_lines, visible


def test_lines_are_highlighted_one_by_one_and_escaped() -> None:
    lines = source_lines('"""a\n<b>"""\nx = "<script>" & 1\n')
    assert len(lines) == 3
    assert all(line.count("<span") == line.count("</span>") for line in lines)
    assert [line.striptags() for line in lines] == ['"""a', '<b>"""', 'x = "<script>" & 1']
    assert Markup("<script>") not in lines[2]


@pytest.mark.parametrize(
    "source", ["\n\nx = 1", "x = 1\n\n\n", "\n", "", "x = 1\r\ny = 2\r\n", "def f(:\n  '''", "\tx"]
)
def test_no_line_is_lost_or_added(source: str) -> None:
    text = source.replace("\r\n", "\n").rstrip("\n")
    assert len(source_lines(source)) == text.count("\n") + 1


def test_what_cannot_be_seen_is_marked_and_long_lines_are_cut() -> None:
    assert visible("a\u202eb\x00c\td") == "a\ufffdb\ufffdc\td"
    (line,) = visible("z" * (MOST_OF_A_LINE + 1234)).split("\n")
    assert line.endswith("… 1,234 more characters")


def test_two_files_side_by_side() -> None:
    before = "\n".join(["same"] * 20 + ["old", "gone"] + ["end"])
    after = "\n".join(["same"] * 20 + ["new"] + ["end", "more"])
    rows = side_by_side(before, after)
    assert [row.kind for row in rows] == ["same"] * 4 + ["skip"] + ["same"] * 4 + ["change"] * 2 + ["same", "insert"]
    assert rows[4].left_line == "12 equal lines"
    changed, removed = rows[9:11]
    assert (changed.left, changed.right, removed.left, removed.right) == (21, 21, 22, None)
    assert (rows[-1].left, rows[-1].right) == (None, 23)
    assert len(side_by_side(before, after, context=None)) == 24
    assert not [row for row in side_by_side(before, before, context=None) if row.kind != "same"]


def test_a_unified_diff_has_its_signs() -> None:
    assert [line.striptags() for line in changes("a\nb\n", "a\n<i>\n")] == ["@@ -1,3 +1,3 @@", "a", "-b", "+<i>", ""]
    assert changes("a", "a") == ()
