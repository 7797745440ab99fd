r"""C++ and CUDA as tokens: comments gone, continued lines joined, strings kept apart from names.

The lexical rules are those of the C++ standard's phases of translation 2 and 3 ([lex.phases]), raw strings, digraphs
and universal character names included: ``\u0063udaLaunch`` is ``cudaLaunch``.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

_TOKEN = re.compile(
    r"""
    (?P<blank>[ \t\r\f\v]+|//[^\n]*|/\*.*?(?:\*/|\Z))
    |(?P<newline>\n)
    |(?P<raw>(?:u8|[uUL])?R"(?P<mark>[^()\\\s]{0,16})\((?P<inside>.*?)\)(?P=mark)")
    |(?P<string>(?:u8|[uUL])?"(?P<content>(?:[^"\\\n]|\\.)*)"?|(?:u8|[uUL])?'(?:[^'\\\n]|\\.)*'?)
    |(?P<number>\.?\d(?:[eEpP][+-]|'?[\w.])*)
    |(?P<name>(?:[^\W\d]|\$|\\u[0-9a-fA-F]{4})(?:\w|\$|\\u[0-9a-fA-F]{4})*)
    |(?P<punctuation>::|->|\#\#|%:%:|%:|<<<|>>>|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_CONTINUED = re.compile(r"\\[ \t]*\r?\n")
_UNIVERSAL = re.compile(r"\\u([0-9a-fA-F]{4})")
_DIGRAPHS = {"%:": "#", "%:%:": "##"}


class Token(NamedTuple):
    """One token."""

    #: A name, a number, punctuation, or a string's content behind a ``"``; "\n" ends a line.
    text: str
    #: Whether nothing stands between it and the token before.
    glued: bool

    @property
    def is_name(self) -> bool:
        """Whether it is an identifier or a keyword."""
        return is_name(self.text)


def is_name(text: str) -> bool:
    """Whether a token's text is that of an identifier or a keyword, qualified or not."""
    return text[0].isalpha() or text[0] in "_$"


def tokens(source: str) -> Iterator[Token]:
    """The tokens of a text; any text has some, nothing is an error."""
    glued = False
    for found in _TOKEN.finditer(_CONTINUED.sub("", source)):
        kind = found.lastgroup
        text = found.group()
        if kind == "blank":
            glued = False
            continue
        if kind == "raw":
            text = f'"{found["inside"]}'
        elif kind == "string":
            text = f'"{found["content"] or ""}'
        elif kind == "punctuation":
            text = _DIGRAPHS.get(text, text)
        elif kind == "name" and "\\" in text:
            text = _UNIVERSAL.sub(lambda code: chr(int(code[1], 16)), text)
        yield Token(text, glued)
        glued = True
