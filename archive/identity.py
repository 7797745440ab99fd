"""The identity of a kernel: the hash of its normalised source.

Sources that differ only in comments, blank lines, trailing blanks or line ends are one kernel, so a parent with a new
comment is not measured again.
"""

import contextlib
import hashlib
import io
import re
import tokenize

from kbevolve.configs.syntax import MOST_SOURCE

#: Hexadecimal digits of an identity: 64 bits, so that a million kernels collide with odds of about 3e-8.
ID_DIGITS = 16
#: Quotation marks times characters of their lines: the tokeniser looks for the end of each to the end of its line.
_MOST_QUOTES = 100_000_000
#: A run of blanks that it may read again for each of them.
_BLANKS = re.compile(r"[ \t\f]{5000}")


def digest(text: str) -> str:
    """Identity of any text: the first 16 hexadecimal digits of its SHA-256."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:ID_DIGITS]


def normalise(source: str) -> str:
    """Source without Python comments, blank lines, trailing blanks and carriage returns.

    Text that is not Python (it does not tokenise) keeps its comments; it may then get another id than an equal kernel.
    Comments inside strings (C++ or CUDA sources) are kept: removing them needs a C++ lexer. Comments stay as well where
    finding them would take long: in a text of megabytes, or of long lines with many quotation
    marks or blanks.
    """
    text = source.replace("\r\n", "\n").replace("\r", "\n")
    quotes = sum(len(line) * (line.count('"') + line.count("'")) for line in text.split("\n"))
    if len(text) <= MOST_SOURCE and quotes <= _MOST_QUOTES and not _BLANKS.search(text):
        with contextlib.suppress(tokenize.TokenError, SyntaxError):
            text = _without_comments(text)
    return "\n".join(line.rstrip() for line in text.split("\n") if line.strip()) + "\n"


def encodable(text: str) -> str:
    """The text with "?" for halves of surrogate pairs, which UTF-8 lacks: exceptions and replies may hold them."""
    return text.encode("utf-8", "replace").decode()


def _without_comments(text: str) -> str:
    lines = text.split("\n")
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    return "\n".join(lines)


#: What marks a backend in a source, most specific first; the first match wins.
_BACKEND_MARKS = (
    ("tilelang", re.compile(r"^\s*(?:import|from) tilelang\b", re.MULTILINE)),
    ("cute", re.compile(r"^\s*(?:import|from) cutlass\.cute\b|^\s*from cutlass import cute\b", re.MULTILINE)),
    ("triton", re.compile(r"@(?:triton|gluon)\.jit|\b(?:tl|gl)\.(load|store|dot)\b|async_compile\.triton")),
    ("thunderkittens", re.compile(r"\bkittens(?:\.cuh|::)")),
    ("hip", re.compile(r"hip/hip_runtime\.h|\bhipStream_t\b|\bhipGetLastError\b")),
    ("cuda", re.compile(r"__global__|cuda_sources\s*=|<<<")),
    ("cpp", re.compile(r"extern\s+\"C\"|cpp_sources\s*=|async_compile\.cpp")),
)


def backend_of(source: str) -> str:
    """Backend label of a source, the value of a `Backend`; ``torch`` when it writes no kernel of its own."""
    for name, mark in _BACKEND_MARKS:
        if mark.search(source):
            return name
    return "torch"
