"""Reads a kernel's C++ and CUDA: its names, after comments, aliases and one level of macros, and its strings.

One regular expression takes comments and strings out, another reads the directives, a third the words that remain. The
body of a macro is program text as well.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from kbevolve.evaluators.lint.marks import Marks
from kbevolve.evaluators.lint.operations import (
    COMMON,
    DESCRIBES,
    HEAVY,
    PRODUCES,
    is_heavy,
    operation_weight,
    weight_in_cpp,
)
from kbevolve.evaluators.lint.tables import PATTERNS, PROCESS_FILES, rules_of, table, words

_CODE = re.compile(r"#\s*(include|define|pragma)\b|__global__|__device__|[;{}]|::")
_CONTINUED = re.compile(r"\\[ \t]*\r?\n")
_COMMENT_OR_STRING = re.compile(
    r"""
    //[^\n]*|/\*.*?(?:\*/|\Z)
    |(?P<raw>R"(?P<mark>[^()\\\s]{0,16})\((?P<inside>.*?)(?:\)(?P=mark)"|\Z))
    |(?P<string>"(?P<content>(?:[^"\\\n]|\\.)*)"?)
    |(?<!\w)(?:u8|[uUL])?'(?:[^'\\\n]|\\.)*'
    """,
    re.VERBOSE | re.DOTALL,
)
_DIRECTIVE = re.compile(r"^[ \t]*\#[ \t]*(\w+)[ \t]*(.*)$", re.MULTILINE)
_MACRO = re.compile(r"(\w+)(?:\(([^)]*)\))?(.*)")
_NAME = re.compile(r"[^\W\d]\w*")
_PASTED = re.compile(r"\b\w+(?:\s*##\s*\w+)+")
#: Strings by number, qualified names, numbers, punctuation.
_WORD = re.compile(r'"\d+|[^\W\d]\w*(?:\s*::\s*[^\W\d]\w*)*|\d[\w.]*|->|[^\s\w]')
_ALIAS = re.compile(r"\b(?:namespace|using)\s+(\w+)\s*=\s*(\w+)")
_OPENED = re.compile(r"\busing\s+namespace\s+(\w+)")
#: A variable or function behind its type; ``int fork();`` only announces a library's function.
_DECLARED = re.compile(r"\b(\w+)[\s*&>]+(\w+)\s*(?=[=;,\[{)]|\([^(){};]*\)\s*(?:const\s*)?\{)")
#: Variables that are tensors for certain.
_TENSOR = re.compile(
    r"\bTensor(?:Base)?[\s&*]+(?:const\s+)?(\w+)|\bauto[\s&]+(\w+)\s*=\s*(?:torch|at)::(?!vec|cuda|stable)"
)
#: Words before a name that do not declare it.
_NO_TYPES = words("return else case new delete throw goto co_return co_await typedef using namespace sizeof")
_FREE_METHODS = PRODUCES | DESCRIBES | table("describes_in_cpp")
#: Methods that no container or vector class of C++ has.
_PLAINLY_HEAVY = HEAVY - COMMON - {"mv", "convolve"}
#: A file-local or function-local variable that keeps something from call to call.
_STATIC = re.compile(
    r"(?!.*\b(const|constexpr|inline|constinit|__device__|__shared__|__forceinline__)\b)"
    r".*?\b((std::)?(unordered_map|map|vector|array|set|unordered_set|list|deque|optional|atomic)|((at|torch|c10)::)?Tensor|void|float"
    r"|double|int|bool|char|unsigned|long|auto|u?int\d+_t|size_t|cuda\w+_t|cublas\w+_t|cudnn\w+_t|(at::cuda::)?CUDAGraph"
    r"|__half|half)\b"
)
#: Characters of a macro's body and of its arguments, and of all that macros make: no text may explode.
_MOST_MACRO = 2000
_MOST_MADE = 200_000
_CALL = re.compile(rf"\b(\w+)\s*\(([^()]{{0,{_MOST_MACRO}}})\)")


def looks_like_cpp(text: str) -> bool:
    """Whether a string is worth reading as C++; the rules go by names, so that prose passes them anyway."""
    return len(text) > 8 and _CODE.search(text) is not None


@dataclass(slots=True)
class _CppText:
    """A text without its comments, strings and directives."""

    text: str = ""
    #: What the numbered strings in the text say.
    strings: list[str] = field(default_factory=list)
    #: Name -> parameters and body of a macro with parameters.
    macros: dict[str, tuple[list[str], str]] = field(default_factory=dict)
    #: Other names of namespaces.
    aliases: dict[str, str] = field(default_factory=dict)
    #: Whether it includes a header with half types.
    halves: bool = False


def check_cpp(source: str, marks: Marks) -> None:
    """Add to `marks` what a C++ or CUDA text does."""
    read = _read(source, marks)
    found = [_qualified(word, read.aliases) for word in _WORD.findall(read.text)]
    opened = _OPENED.findall(read.text)
    own = {name for before, name in _DECLARED.findall(read.text) if before not in _NO_TYPES}
    tensors = {name for pair in _TENSOR.findall(read.text) for name in pair if name}
    for index, word in enumerate(found):
        before = found[index - 1] if index else ""
        behind = found[index + 1] if index + 1 < len(found) else ";"
        if word[0] == '"':
            _check_string(read.strings[int(word[1:])], found[max(0, index - 2) : index], marks)
        elif not _is_name(word):
            continue
        elif before in {".", "->"}:
            _check_method(word, found[index - 2] if index > 1 else "", behind, tensors, marks)
        else:
            spaces = [] if word in own or "::" in word else opened
            for name in [word, *(f"{space}::{word}" for space in spaces)]:
                _check_name(name, before, behind, word in own, marks)
            # `half` alone is too good a name for a number.
            if read.halves and word in {"half", "half2"} and word not in own and (_is_name(behind) or behind in "*&>("):
                marks.tag("half-types")
            if word == "TORCH_LIBRARY_IMPL" and found[index + 2 : index + 3] == ["aten"]:
                marks.refuse("patches-torch")
            if word == "static" and _keeps_state(found[index + 1 : index + 40]):
                marks.tag("module-cache")
            if word == "catch":
                marks.tag("try-except-fallback")
            if word in {"__global__", "__device__"} or (word == "extern" and behind[0] == '"'):
                marks.own_kernel = True


def _read(source: str, marks: Marks) -> _CppText:
    read = _CppText()

    def without(found: re.Match[str]) -> str:
        if not (found["raw"] or found["string"]):
            return " "
        read.strings.append(found["inside"] if found["raw"] else found["content"])
        return f' "{len(read.strings) - 1} '

    def directive(found: re.Match[str]) -> str:
        return _check_directive(found[1], found[2], read, marks)

    text = _COMMENT_OR_STRING.sub(without, _CONTINUED.sub("", source).replace("%:", "#"))
    read.text = _DIRECTIVE.sub(directive, text)
    read.aliases.update(_ALIAS.findall(read.text))
    read.text += _expansions(read, marks)
    return read


def _check_directive(kind: str, rest: str, read: _CppText, marks: Marks) -> str:
    """Note what a directive says; what it adds to the program."""
    if kind == "include":
        name = rest.strip(' <>"')
        header = read.strings[int(name)] if name.isdigit() and '"' in rest else name
        read.halves |= any(part in header for part in ("cuda_fp16", "cuda_bf16", "torch", "ATen"))
        if header.startswith(("sys/socket", "netinet/", "arpa/", "netdb", "curl/")):
            marks.refuse("network")
        if header.startswith(("sys/ptrace", "link.h", "linux/seccomp")):
            marks.refuse("foreign-library")
        if header.startswith(("cublas", "cudnn", "cusparse", "cusolver", "mkl", "cblas", "dnnl", "cutensor")):
            marks.tag("third-party")  # the header alone computes nothing
    elif kind == "pragma" and ("fast-math" in rest or "Ofast" in rest):
        marks.tag("fast-math")
    elif kind == "define" and (macro := _MACRO.match(rest)):
        name, parameters, body = macro.groups()
        if "##" in body:
            marks.tag("token-pasting")
        if parameters is not None:
            read.macros[name] = [one.strip() for one in parameters.split(",")], body
        elif _NAME.fullmatch(body.strip()):
            read.aliases[name] = body.strip()
        return f"{body.replace('#', ' ')};"
    return ""


def _expansions(read: _CppText, marks: Marks) -> str:
    """What calls of the file's macros become, without the macros in them."""
    made = ""
    for found in _CALL.finditer(read.text) if read.macros else ():
        parameters, body = read.macros.get(found[1], ([], ""))
        if len(made) < _MOST_MADE and len(body) < _MOST_MACRO:
            bound = dict(zip(parameters, map(str.strip, found[2].split(",")), strict=False))
            text = "".join(bound.get(part, part) for part in re.findall(r"\w+|\W+", body))
            if any(PATTERNS["sensitive"].fullmatch(_joined(name)) for name in _PASTED.findall(text)):
                marks.refuse("token-pasting")
            made += f"{_joined(text)};"
    return made


def _joined(text: str) -> str:
    """The text after its ``##`` and ``#``."""
    return re.sub(r"\s*##\s*", "", text).replace("#", " ")


def _is_name(word: str) -> bool:
    return word[0].isalpha() or word[0] == "_"


def _qualified(word: str, aliases: dict[str, str]) -> str:
    """A qualified name without blanks and aliases."""
    first, colons, rest = "".join(word.split()).partition("::")
    for _ in range(3 if colons else 0):
        first = aliases.get(first, first)
    return f"{first}{colons}{rest}"


def _check_name(name: str, before: str, behind: str, own: bool, marks: Marks) -> None:
    announced = _is_name(before or "(") and before not in _NO_TYPES
    for tag, refused in () if own else rules_of(name, "cpp"):
        if not refused:
            marks.tag(tag)
        elif behind == "(" and not announced:
            marks.refuse(tag)
    weight = weight_in_cpp(name)
    # Called, or passed on to be called.
    if weight and (behind in {"(", ")", ",", ";"} or before == "&" or name.startswith("at::_ops::")):
        marks.operation(weight, name)


def _check_method(name: str, receiver: str, behind: str, tensors: set[str], marks: Marks) -> None:
    """``receiver.name(``: a tensor's operation, where the receiver is a tensor or the name leaves no doubt."""
    if name in {"data_ptr", "mutable_data_ptr", "const_data_ptr"}:
        marks.tag("data-pointer")
    if behind == "(" and receiver in tensors and name not in _FREE_METHODS:
        marks.operation(operation_weight(name), f".{name}")
    elif behind == "(" and name in _PLAINLY_HEAVY:
        marks.operation("heavy", f".{name}")


def _check_string(text: str, previous: Sequence[str], marks: Marks) -> None:
    if operator := re.match(r"(?:aten|prims)::(\w+)", text):
        marks.operation(operation_weight(operator[1]), operator[0])
    if previous[-2:] == ["attr", "("]:
        marks.operation("heavy" if is_heavy(text) else "", text)
    if re.search(r"\b(mma|wgmma|tcgen05|cvt)\S*\.(tf32|f16|bf16|e4m3|e5m2)", text):
        marks.tag("half-types")
    if re.search(r"\.approx\b", text):
        marks.tag("fast-math")
    if previous[-1:] == ["("] and re.search(r"(^|[\s;])(syscall|int \$0x80|svc #?0)\b", text):
        marks.refuse("subprocess")
    if PROCESS_FILES.match(text):
        marks.refuse("frames")


def _keeps_state(behind: Sequence[str]) -> bool:
    """Whether a declaration behind ``static`` is a variable that is not constant; template arguments do not count."""
    declaration = re.match(r"[^;=({\[]*[;=({\[]?", re.sub(r"<[^<>]*>", "", " ".join(behind)))
    assert declaration is not None
    return not declaration[0].endswith("(") and _STATIC.match(declaration[0]) is not None
