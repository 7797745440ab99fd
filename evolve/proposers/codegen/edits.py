"""From a model's answer to a source: SEARCH/REPLACE edits on a parent, or a whole new file.

Models copy imperfectly, so a SEARCH part is matched in three ways, each looser than the one before: exactly, without
trailing blanks and blank border lines, and shifted by one indentation. A way counts only when it matches exactly once.
An edit that cannot be applied is an `AnswerError` whose text can be sent back to the model.
"""

import difflib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

from kbevolve.evolve.proposers.codegen.code_blocks import FENCE, lines_of
from kbevolve.evolve.proposers.codegen.whole_file import MOST_ANSWER, AnswerError, checked, ends_inside, whole_file

_SEARCH = re.compile(r"\s*<{5,9}\s*(SEARCH|ORIGINAL)\b.*", re.IGNORECASE)
_DIVIDER = re.compile(r"\s*={5,9}\s*")
#: Lines of a file, and characters of a line, that are compared with one that was not found.
_MOST_COMPARED = 5000
_LONGEST_COMPARED = 200
_REPLACE = re.compile(r"\s*>{5,9}\s*(REPLACE|UPDATED)\b.*", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """One SEARCH/REPLACE block."""

    #: Lines to find, and the lines that replace them.
    search: tuple[str, ...]
    replace: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedAnswer:
    """The source that an answer gives."""

    source: str
    #: Number of edits that made it; 0 for a whole file.
    edits: int = 0


def read_answer(answer: str, base: str | None, *, truncated: bool = False) -> ParsedAnswer:
    """The source that an answer gives.

    Args:
        answer: what the model wrote, without its reasoning.
        base: the source that edits apply to; None when there is none.
        truncated: the answer was cut short, so an unclosed last block is not complete.

    Raises:
        AnswerError: no edit and no whole file, an edit that does not fit, or a source that is no kernel.
    """
    if len(answer) > MOST_ANSWER:
        raise AnswerError(f"the answer has {len(answer)} characters, and at most {MOST_ANSWER} are read.")
    complaint: AnswerError | None = None
    try:
        edits = parse_edits(answer)
        if edits and base is not None:
            return ParsedAnswer(source=checked(apply_edits(base, edits)), edits=len(edits))
    except AnswerError as error:
        complaint = error
    try:
        source = whole_file(answer, truncated=truncated)
        quoted = base is not None and lines_of(source.strip()) == lines_of(base.strip())
        if quoted and (truncated or ends_inside(answer)):
            raise AnswerError("the answer quotes the old file and is cut short before the new one is whole.")
        return ParsedAnswer(source=source)
    except AnswerError as error:
        raise complaint or error from None


# ---- edits -------------------------------------------------------------------------------------------------------


def parse_edits(answer: str) -> tuple[Edit, ...]:
    """The SEARCH/REPLACE blocks of an answer, in order; () when it has none. A repeated block counts once.

    Raises:
        AnswerError: a block is incomplete.
    """
    edits: list[Edit] = []
    search: list[str] | None = None
    replace: list[str] | None = None
    for line in lines_of(answer):
        if search is None:
            if _SEARCH.fullmatch(line):
                search = []
        elif replace is None:
            if _DIVIDER.fullmatch(line):
                replace = []
            elif _SEARCH.fullmatch(line) or _REPLACE.fullmatch(line):
                raise AnswerError(f"block {len(edits) + 1} has no ======= line between SEARCH and REPLACE.")
            else:
                search.append(line)
        elif _REPLACE.fullmatch(line):
            edits.append(Edit(search=_unfenced(search), replace=_unfenced(replace)))
            search = replace = None
        elif _SEARCH.fullmatch(line):
            raise AnswerError(f"block {len(edits) + 1} is not closed by a line >>>>>>> REPLACE.")
        else:
            replace.append(line)
    if search is not None:
        raise AnswerError(f"block {len(edits) + 1} is not closed by a line >>>>>>> REPLACE.")
    return tuple(dict.fromkeys(edits))


def apply_edits(source: str, edits: Sequence[Edit]) -> str:
    """`source` after all edits, applied one after another; line ends become ``\\n``.

    Raises:
        AnswerError: a SEARCH part is empty, is not in the source, or is there more than once.
    """
    lines = lines_of(source)
    for number, edit in enumerate(edits, start=1):
        first, last, replace = _place(lines, edit, number)
        lines[first:last] = replace
    return "\n".join(lines)


def _place(lines: Sequence[str], edit: Edit, number: int) -> tuple[int, int, list[str]]:
    """Where an edit applies (first line, line after the last), and its new lines."""
    if not any(line.strip() for line in edit.search):
        raise AnswerError(f"block {number} has an empty SEARCH part; copy the lines to be replaced into it.")
    search, replace = list(edit.search), list(edit.replace)
    found = _matches(lines, search, lambda line: line)
    if not found:
        search, replace = _trimmed(search), _trimmed(replace)
        found = _matches(lines, search, str.rstrip)
    if not found:
        found = [at for at in _matches(lines, search, str.strip) if _shift(lines[at:], search) is not None]
        if found:
            replace = _shifted(replace, _shift(lines[found[0] :], search) or (0, ""))
    head = next(line for line in search if line.strip()).strip()
    if not found:
        raise AnswerError(f"block {number}: its SEARCH part is not in the file.{_nearest(lines, search)}")
    if len(found) > 1:
        places = ", ".join(str(at + 1) for at in found[:5])
        raise AnswerError(
            f"block {number}: its SEARCH part, which begins with `{head[:80]}`, is in the file {len(found)} times "
            f"(lines {places}); add neighbouring lines until it is unique."
        )
    return found[0], found[0] + len(search), replace


def _matches(lines: Sequence[str], search: Sequence[str], view: Callable[[str], str]) -> list[int]:
    """Where `search` occurs in `lines` after `view` is applied to both."""
    seen, wanted = [view(line) for line in lines], [view(line) for line in search]
    return [at for at in range(len(seen) - len(wanted) + 1) if seen[at : at + len(wanted)] == wanted]


def _shift(lines: Sequence[str], search: Sequence[str]) -> tuple[int, str] | None:
    """The one change of indentation that makes `search` the beginning of `lines`: number of blanks to remove, and
    blanks to add; None when there is no single one."""
    changes = set()
    for line, wanted in zip(lines, search, strict=False):
        if wanted.strip():
            has, says = _indent(line), _indent(wanted)
            if has.endswith(says):
                changes.add((0, has[: len(has) - len(says)]))
            elif says.endswith(has):
                changes.add((len(says) - len(has), ""))
            else:
                return None
    return changes.pop() if len(changes) == 1 else None


def _shifted(lines: Sequence[str], change: tuple[int, str]) -> list[str]:
    away, added = change
    return [added + line[min(away, len(_indent(line))) :] if line.strip() else line for line in lines]


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _trimmed(lines: Sequence[str]) -> list[str]:
    """Without blank lines at either end."""
    kept = [number for number, line in enumerate(lines) if line.strip()]
    return list(lines[kept[0] : kept[-1] + 1]) if kept else []


def _nearest(lines: Sequence[str], search: Sequence[str]) -> str:
    """The first line of a SEARCH part that the file lacks, and the file's nearest line."""
    seen = {line.strip(): number for number, line in enumerate(lines, start=1) if line.strip()}
    for line in search:
        if line.strip() and line.strip() not in seen:
            # The time grows with the number of lines and the square of their length.
            short = [text for text in islice(seen, _MOST_COMPARED) if len(text) <= _LONGEST_COMPARED]
            close = difflib.get_close_matches(line.strip()[:_LONGEST_COMPARED], short, n=1, cutoff=0.5)
            nearest = f"; nearest is line {seen[close[0]]}: `{close[0][:120]}`" if close else ""
            return f" No line reads `{line.strip()[:120]}`{nearest}."
    return " Each of its lines is in the file, but not one after another."


def _unfenced(lines: list[str]) -> tuple[str, ...]:
    """Without the code fence that some models put around a part."""
    kept = _trimmed(lines)
    if len(kept) >= 2 and FENCE.fullmatch(kept[0]) and FENCE.fullmatch(kept[-1]):
        return tuple(kept[1:-1])
    return tuple(lines)
