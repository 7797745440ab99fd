"""Turns a worker's report of a failure into a message of a few lines for people and prompts."""

import re
from typing import Any

from kbevolve.archive.records import Verdict

#: Characters of a message, to keep prompts short, and of one line in it: lines of template errors are long.
_MOST_TEXT = 2000
_MOST_LINE = 300
#: Compiler errors shown: later ones are often consequences of the first.
_MOST_ERRORS = 3

#: `file:line:col: error: …` (g++, clang), `file(line): error: …` (nvcc), `ptxas error : …`, `ptxas fatal : …`, `ld: …`.
_COMPILER_ERROR = re.compile(
    r"^(?P<file>[^\s:()]+)(?::(?P<line>\d+)(?::\d+)?:|\((?P<line2>\d+)\):)\s+(?:fatal\s+)?error\b.*"
    r"|^ptxas\b(?!.*aborted due to errors).*(?:error|fatal).*"
    r"|^.*\b(?:ld|collect2)(?:\.\w+)?: (?:error|cannot find|undefined)\b.*"
    r"|^.*undefined reference to.*",
    re.MULTILINE,
)
#: g++ and clang print a source line after its number: ``   12 |     x = y;``.
_LINE_NUMBER = re.compile(r"^\s*\d+ \| ?")
#: Lines of the candidate shown on either side of the first error.
_LINES_AROUND = 2
#: The name of a worker's directory, what follows it in a path, and what may be a path.
_PRIVATE = "/kbevolve-worker-"
_INSIDE = re.compile(r"/[^/]+/(?:work/|tmp/extensions/|tmp/)?")
_WORD = re.compile(r"[^\s:,;=()'\"]+")
#: Characters of a report that are read: a worker sends no more.
_MOST_REPORTED = 200_000
#: What torch appends to every CUDA error and to every out-of-memory error, whatever the cause.
_BOILERPLATE = re.compile(
    r"^(?:Search for `cuda|CUDA kernel errors might|For debugging consider|Compile with `TORCH_USE_CUDA_DSA).*\n?"
    r"| Process \d+ has .*| Including non-PyTorch memory.*",
    re.MULTILINE,
)


def failure_of(reply: dict[str, Any], source: str = "") -> tuple[Verdict, str]:
    """Verdict and message of a reply with ``"ok": false``. Every field is checked: the worker is not trusted.

    `source` is the candidate's file, to show the lines around a compiler's error.
    """
    stage = str(reply.get("stage"))
    kind = str(reply.get("type"))[:100]
    text = str(reply.get("text"))[:_MOST_REPORTED]
    if stage == "format":
        return Verdict.REFUSED, _cut(text)
    if stage == "build":
        return Verdict.BUILD_FAILED, f"does not compile: {compiler_excerpt(text, source)}"
    where, frames = "", reply.get("frames")
    if isinstance(frames, list) and frames and isinstance(last := frames[-1], dict):
        code = str(last.get("code"))[:200]
        where = f" (line {last.get('line')!s:.10}, in {last.get('function')!s:.60}: `{code}`)"
    verdict = Verdict.BUILD_FAILED if stage == "import" else Verdict.CRASHED
    doing = {"import": "importing the file", "construct": "constructing ModelNew"}.get(stage, "calling forward()")
    return verdict, _cut(f"{doing} raised {kind}: {_shorten(text)}{where}")


def compiler_excerpt(log: str, source: str = "") -> str:
    """The first errors of a compiler's log, each with the source lines printed below it.

    The compiler's line numbers refer to a generated file. Where the printed line occurs once in `source`, the first
    error also gets the lines around it there, with the numbers of the candidate's file.
    """
    log = without_directories(log)
    errors = list(_COMPILER_ERROR.finditer(log))
    if not errors:
        return _cut(_shorten(log))
    parts: list[str] = []
    for found in errors[:_MOST_ERRORS]:
        # g++ and nvcc print the source line and a caret line after the error.
        below = log[found.end() :].split("\n")[1:4]
        context = [line for line in below if line.strip() and not _COMPILER_ERROR.match(line)][:2]
        if not parts and context:
            context += _neighbours(context[0], source)
        parts.append("\n".join(line[:_MOST_LINE] for line in (found.group(0), *context)))
    more = f"\n… {len(errors) - len(parts)} more errors" if len(errors) > len(parts) else ""
    return _cut("\n".join(parts) + more)


def without_directories(text: str) -> str:
    """The text with the worker's private directory removed from paths; in time linear in the text."""
    return _WORD.sub(_without_directory, text)


def _without_directory(word: re.Match[str]) -> str:
    text = word.group()
    last = text.rfind(_PRIVATE)
    inside = _INSIDE.match(text, last) if last >= 0 else None
    return text if inside is None else text[: text.index("/")] + text[inside.end() :]


def _neighbours(printed: str, source: str) -> list[str]:
    """The candidate's lines around the one that a compiler printed; none where that line is not unique."""
    wanted = _LINE_NUMBER.sub("", printed).strip()
    lines = source.split("\n")
    found = [index for index, line in enumerate(lines) if line.strip() == wanted]
    if not wanted or len(found) != 1:
        return []
    first = max(0, found[0] - _LINES_AROUND)
    shown = enumerate(lines[first : found[0] + _LINES_AROUND + 1], start=first + 1)
    return ["in your file:", *(f"{number:>5}  {line}" for number, line in shown)]


def _shorten(text: str) -> str:
    """Head and tail of a text: the head names the error, the tail often the cause."""
    text = _BOILERPLATE.sub("", without_directories(text)).strip()
    room = _MOST_TEXT * 3 // 4
    return text if len(text) <= room else f"{text[: room * 2 // 3]}\n[…]\n{text[-room // 3 :]}"


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_TEXT else f"{text[: _MOST_TEXT - 1]}…"
