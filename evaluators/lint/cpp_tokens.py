r"""C++ and CUDA as tokens after their macros: comments gone, both branches of every ``#if`` kept.

The lexical rules are those of the C++ standard ([lex.phases] 2 and 3): raw strings, digraphs and universal character
names included, so that ``\u0063udaLaunch`` is ``cudaLaunch``. Macros follow [cpp.replace] as far as names go. The body
of a macro is program text as well, so that every one of its definitions is read.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

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
#: Tokens that expansion may make: a text that would explode is kept as far as it got.
_MOST_TOKENS = 60_000
#: Macros within macros.
_DEEPEST = 12


def is_name(text: str) -> bool:
    """Whether a token is an identifier or a keyword, qualified or not."""
    return text[0].isalpha() or text[0] in "_$"


def tokens(source: str) -> Iterator[tuple[str, bool]]:
    r"""The tokens of a text, each with whether it follows the one before without a blank.

    A string is its content behind a ``"``; "\n" ends a line. Any text has tokens: nothing is an error.
    """
    glued = False
    for found in _TOKEN.finditer(_CONTINUED.sub("", source)):
        kind, text = found.lastgroup, found.group()
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
        yield text, glued
        glued = True


@dataclass(slots=True)
class PreprocessedText:
    """A text after its macros."""

    tokens: list[str] = field(default_factory=list)
    #: Names that ``##`` made.
    pasted: set[str] = field(default_factory=set)
    #: Whether the body of a macro has a ``##``.
    pastes: bool = False
    #: Files that it includes.
    includes: set[str] = field(default_factory=set)
    #: What its pragmas say.
    pragmas: list[str] = field(default_factory=list)


def preprocess(source: str) -> PreprocessedText:
    """Obey the directives of a C++ or CUDA text and expand its macros."""
    work = _Expansion()
    program: list[str] = []
    line: list[tuple[str, bool]] = []
    for token in (*tokens(source), ("\n", False)):
        if token[0] != "\n":
            line.append(token)
            continue
        match [text for text, _ in line]:
            case ["#", "define", name, *body]:
                program += [*work.define(name, body, glued=bool(body) and line[3][1]), ";"]
            case ["#", "include" | "import" | "include_next", *name]:
                work.result.includes.add("".join(name).strip('<>"'))
            case ["#", "pragma", *rest]:
                work.result.pragmas.append(" ".join(rest))
            case ["#", *_]:
                pass
            case words:
                program += words
        line = []
    # All at once: a macro's arguments may span lines.
    work.result.tokens = work.expand(program, frozenset())
    return work.result


class _Expansion:
    """The macros of one text, and what their expansion found."""

    def __init__(self) -> None:
        #: Name -> parameters, None for a macro without a list of them, and body.
        self._macros: dict[str, tuple[list[str] | None, list[str]]] = {}
        self._made = 0
        self.result = PreprocessedText()

    def define(self, name: str, body: list[str], *, glued: bool) -> list[str]:
        """Record a macro, with parameters if a parenthesis is glued to its name; its body without ``#`` and ``##``."""
        parameters = None
        if glued and body[0] == "(" and ")" in body:
            end = body.index(")")
            parameters = [word for word in body[1:end] if word not in {",", "."}]
            parameters += ["__VA_ARGS__"] if "." in body[:end] else []
            body = body[end + 1 :]
        self.result.pastes |= "##" in body
        self._macros[name] = parameters, body
        return [word for word in body if word not in {"#", "##"}]

    def expand(self, words: Sequence[str], hidden: frozenset[str]) -> list[str]:
        """Words with all macros replaced but those in `hidden`, which are being replaced already."""
        done: list[str] = []
        index = 0
        while index < len(words):
            word = words[index]
            index += 1
            parameters, body = self._macros.get(word, (None, []))
            arguments, behind = _arguments(words, index) if parameters is not None else ([], index)
            known = word in self._macros and word not in hidden and (arguments or parameters is None)
            if not known or len(hidden) >= _DEEPEST or self._made > _MOST_TOKENS:
                done.append(word)
                continue
            index = behind
            bound = dict(zip(parameters or [], arguments, strict=False))
            if parameters and parameters[-1] == "__VA_ARGS__":
                rest = arguments[len(parameters) - 1 :]
                bound["__VA_ARGS__"] = [word for argument in rest for word in (",", *argument)][1:]
            made = self._substitute(body, bound)
            self._made += len(made)
            done += self.expand(made, hidden | {word})
        return done

    def _substitute(self, body: Sequence[str], bound: dict[str, list[str]]) -> list[str]:
        """A macro's body with its arguments put in and the neighbours of ``##`` joined."""
        made: list[str] = []
        for before, word in zip(["", *body], body, strict=False):
            put = [] if word in {"#", "##"} else bound.get(word, [word])
            if before == "##" and made and put:
                made[-1] += put[0]
                self.result.pasted.add(made[-1])
                put = put[1:]
            made += put
        return made


def _arguments(words: Sequence[str], start: int) -> tuple[list[list[str]], int]:
    """Arguments of a macro call whose parenthesis would be at `start`, and the place behind; none without one."""
    arguments: list[list[str]] = [[]]
    depth = 0
    for index in range(start, len(words)):
        word = words[index]
        depth += (word in {"(", "[", "{"}) - (word in {")", "]", "}"})
        if depth == 0:
            return (arguments, index + 1) if word == ")" else ([], start)
        if word == "," and depth == 1:
            arguments.append([])
        elif index > start:
            arguments[-1].append(word)
    return [], start
