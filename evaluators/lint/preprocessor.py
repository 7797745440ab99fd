"""C++ after its macros: definitions expanded, pasted names joined, includes listed, both branches of every #if kept.

It follows [cpp.replace] of the C++ standard as far as names go: macros with and without parameters, ``##``, and no
macro within itself. A macro that is defined more than once stands for all its definitions.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from kbevolve.evaluators.lint.tokens import Token, is_name, tokens

#: Tokens that expansion may make; a text that would explode is kept as far as it got.
_MOST_TOKENS = 60_000
#: Macros within macros.
_DEEPEST = 12
#: Definitions of one macro that are kept (branches of an #if).
_MOST_DEFINITIONS = 4


@dataclass(frozen=True, slots=True)
class Macro:
    """One definition."""

    #: None for a macro without a parameter list.
    parameters: tuple[str, ...] | None
    body: tuple[str, ...]


@dataclass(slots=True)
class Preprocessed:
    """A text after its macros."""

    tokens: list[str] = field(default_factory=list)
    #: Names that ``##`` made.
    pasted: set[str] = field(default_factory=set)
    #: Whether a definition pastes at all.
    pastes: bool = False
    #: Files that it includes.
    includes: set[str] = field(default_factory=set)
    #: What its pragmas say.
    pragmas: list[str] = field(default_factory=list)


def preprocess(source: str, definitions: Iterable[str] = ()) -> Preprocessed:
    """A text's tokens after its macros.

    Args:
        source: C++ or CUDA.
        definitions: what the compiler gets with ``-D``, as ``NAME`` or ``NAME=VALUE``.
    """
    work = _Expansion()
    for definition in definitions:
        name, _, value = definition.partition("=")
        work.define(list(tokens(f"{name} {value or 1}")))
    line: list[Token] = []
    program: list[str] = []
    for token in tokens(source):
        if token.text != "\n":
            line.append(token)
            continue
        work.take(line, program)
        line = []
    work.take(line, program)
    # All at once, because a macro's arguments may span lines.
    work.result.tokens = work.expand(program, frozenset()) if work.macros else program
    return work.result


class _Expansion:
    """One text's macros, and what expanding them found."""

    def __init__(self) -> None:
        self.macros: dict[str, list[Macro]] = {}
        self.result = Preprocessed()
        self._made = 0

    def take(self, line: list[Token], program: list[str]) -> None:
        """Obey a directive; anything else is program."""
        if not line or line[0].text != "#":
            program.extend(token.text for token in line)
            return
        words = [token.text for token in line[1:]]
        match words:
            case ["define", *_]:
                self.define(line[2:])
            case ["include" | "import" | "include_next", *name]:
                self.result.includes.add("".join(name).strip('<>"'))
            case ["pragma", *rest]:
                self.result.pragmas.append(" ".join(rest))

    def define(self, line: Sequence[Token]) -> None:
        """Record ``NAME body`` or ``NAME(parameters) body``."""
        if not line:
            return
        words = [token.text for token in line]
        parameters: tuple[str, ...] | None = None
        body = words[1:]
        if len(line) > 1 and words[1] == "(" and line[1].glued and ")" in words:
            end = words.index(")")
            named = [word for word in words[2:end] if word not in {",", "."}]
            parameters = tuple(named) + (("__VA_ARGS__",) if "." in words[2:end] else ())
            body = words[end + 1 :]
        self.result.pastes |= "##" in body
        known = self.macros.setdefault(words[0], [])
        if len(known) < _MOST_DEFINITIONS:
            known.append(Macro(parameters, tuple(body)))

    def expand(self, words: Sequence[str], hidden: frozenset[str]) -> list[str]:
        """Words with all macros replaced but those in `hidden`, which are being replaced already."""
        done: list[str] = []
        index = 0
        while index < len(words):
            word = words[index]
            index += 1
            macros = self.macros.get(word) if word not in hidden else None
            if macros is None or len(hidden) >= _DEEPEST or self._made > _MOST_TOKENS:
                done.append(word)
                continue
            arguments, behind = _arguments(words, index)
            for macro in macros:
                if macro.parameters is None:
                    body = self._paste(macro.body, {})
                elif arguments is not None:
                    body = self._paste(macro.body, _bound(macro.parameters, arguments))
                    index = behind
                else:
                    done.append(word)
                    continue
                self._made += len(body)
                done.extend(self.expand(body, hidden | {word}))
        return done

    def _paste(self, body: Sequence[str], bound: dict[str, list[str]]) -> list[str]:
        """A macro's body with arguments put in and neighbours of ``##`` joined."""
        made: list[str] = []
        joining = False
        for position, word in enumerate(body):
            if word == "##":
                joining = True
                continue
            if word == "#" and position + 1 < len(body) and body[position + 1] in bound:
                continue  # the argument as a string: its words say the same
            put = bound.get(word, [word])
            if joining and made and put:
                joined = made.pop() + put[0]
                if is_name(joined):
                    self.result.pasted.add(joined)
                made.append(joined)
                put = put[1:]
            joining = False
            made.extend(put)
        return made


def _arguments(words: Sequence[str], start: int) -> tuple[list[list[str]] | None, int]:
    """Arguments of a macro call whose parenthesis would be at `start`, and the place behind; None without one."""
    if start >= len(words) or words[start] != "(":
        return None, start
    arguments: list[list[str]] = [[]]
    depth = 0
    for index in range(start, len(words)):
        word = words[index]
        if word == "(" or word == "[" or word == "{":
            depth += 1
        elif word == ")" or word == "]" or word == "}":
            depth -= 1
            if depth == 0:
                return arguments, index + 1
        if word == "," and depth == 1:
            arguments.append([])
        elif index > start:
            arguments[-1].append(word)
    return None, start


def _bound(parameters: tuple[str, ...], arguments: list[list[str]]) -> dict[str, list[str]]:
    bound = dict(zip(parameters, arguments, strict=False))
    if parameters and parameters[-1] == "__VA_ARGS__":
        rest: list[str] = []
        for argument in arguments[len(parameters) - 1 :]:
            rest += [",", *argument] if rest else argument
        bound["__VA_ARGS__"] = rest
    return bound
