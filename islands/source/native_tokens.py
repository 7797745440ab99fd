"""Native code (C++ or CUDA) without its comments and without the blanks that part nothing.

Comments and blanks are told from code as the translation phases of C++ do, by tokens: what is in a string stays. Where
telling needs more than that (raw strings, ``__LINE__``, macros that make strings of their arguments, a quote that never
ends) the text stays as it is: stricter, never looser. Names stay, too: whether one is local or a header's, only a
compiler knows. Lines of the preprocessor keep their blanks: ``#define F(x)`` and ``#define F (x)`` are two macros.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

#: Where a comment or a line break may be seen by the program, or where this lexer would need to know more.
_PLAIN_ONLY = re.compile(
    r'R"|[\r\f\v\0]|\\[ \t]+\n|\?\?[=/\'()!<>-]|%:|'
    r"__LINE__|__FILE__|__BASE_FILE__|__FILE_NAME__|__TIMESTAMP__|source_location|__builtin_(?:LINE|FILE|FUNCTION|COLUMN)|__has_include|__has_embed|"
    r"\bincbin\b|\bembed\b|#[ \t]*(?:line|import|include_next)\b"
)
_LEXEME = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)
    |(?P<literal>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<number>\.?[0-9](?:[eEpP][+-]|'\w|[\w.])*)
    |(?P<word>[A-Za-z_$][\w$]*)
    |(?P<line>\n)
    |(?P<blank>[ \t]+)
    |(?P<other>.)""",
    re.DOTALL | re.VERBOSE | re.ASCII,
)
_INCLUDE = re.compile(r'\#[ \t]*include[ \t]*(?:<[^>\n]*>|"[^"\n]*")')
#: Each is a token of its own, whatever stands beside it.
_ALONE = frozenset(";,(){}[]")
#: May be a part of a longer operator, never of a word.
_OPERATORS = frozenset("+-*/%&|^!=<>?:~")


class _Lexeme(NamedTuple):
    kind: str
    text: str
    #: Whether blanks, a comment or a line's end stood before it.
    apart: bool


class _Unclear(Exception):
    """The text cannot be told from its comments with certainty."""


def native_form(text: str) -> str:
    """What is compiled of a native text: equal for texts that differ in comments and blanks only.

    Args:
        text: a whole source file. Two equal forms compile to the same program.
    """
    try:
        return "\x1e".join(_joined(_lexemes(text)))
    except _Unclear:
        return f"\x00{text}"


def _lexemes(text: str) -> Iterator[_Lexeme]:
    if _PLAIN_ONLY.search(text):
        raise _Unclear
    text = text.replace("\\\n", "")
    place, apart, fresh = 0, False, True
    while place < len(text):
        found = _LEXEME.match(text, place)
        assert found is not None, "any character is at least `other`"
        kind, word = str(found.lastgroup), found.group()
        if fresh and word == "#":
            line, place = _directive(text, place)
            yield _Lexeme("directive", line, False)
            apart = False
            continue
        place = found.end()
        if kind in ("comment", "blank", "line"):
            apart, fresh = True, fresh or kind == "line"
            continue
        if word in "\"'\\" or (word == "/" and text[place : place + 1] == "*"):
            raise _Unclear  # a quote or a comment that never ends
        yield _Lexeme(kind, word, apart)
        apart = fresh = False


def _directive(text: str, place: int) -> tuple[str, int]:
    """A line of the preprocessor that begins at `place`, comments as one blank each; and where its end is."""
    head = _INCLUDE.match(text, place)
    parts, place = ([head.group()], head.end()) if head else (["#"], place + 1)
    while place < len(text) and text[place] != "\n":
        found = _LEXEME.match(text, place)
        assert found is not None, "any character is at least `other`"
        word, place = found.group(), found.end()
        if word in ('"', "'", "\\") or (word == "/" and text[place : place + 1] == "*"):
            raise _Unclear
        parts.append(" " if found.lastgroup == "comment" else word)
    line = "".join(parts).strip()
    rest = line[1:].lstrip()
    if "#" in rest.replace("##", "") or (head is None and rest.startswith("include")):
        raise _Unclear  # a macro that makes strings; a header's name in which // would be no comment
    return line, place


def _joined(lexemes: Iterator[_Lexeme]) -> Iterator[str]:
    before = _Lexeme("directive", "", False)
    for lexeme in lexemes:
        yield f" {lexeme.text}" if lexeme.apart and _parts(before, lexeme) else lexeme.text
        before = lexeme


def _parts(before: _Lexeme, after: _Lexeme) -> bool:
    """Whether a blank between two lexemes may keep them from being one token, or several others."""
    if "directive" in (before.kind, after.kind) or before.text in _ALONE or after.text in _ALONE:
        return False
    if before.kind == "number" and before.text[-1] in "eEpP" and after.text in "+-":
        return True
    kinds = {before.kind, after.kind}
    operators = before.text in _OPERATORS or after.text in _OPERATORS
    return not (operators and kinds in ({"word", "other"}, {"number", "other"}))
