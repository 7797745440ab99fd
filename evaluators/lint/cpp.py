"""Reads a kernel's C++ and CUDA: its names, after comments, aliases and one level of macros, and its strings.

One regular expression takes comments and strings out, another reads the directives, a third the words that remain. The
body of a macro is program text as well.
"""

import re
from collections.abc import Sequence

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
#: Instructions that enter the operating system's kernel, on x86-64 and on ARM.
_SYSTEM_CALL = re.compile(r"(^|[\s;])(syscall|int \$0x80|svc #?0)\b")
#: Bytes among instructions, and data where instructions are.
_MACHINE_CODE = re.compile(
    r"(^|[\s;])\.(byte|[248]byte|long|quad|octa|h?word|short|value|int|float|double|single|asci[iz]|string(?:8|16|32|64)?"
    r"|fill|skip|space|zero|rept|irpc?|(?:alt)?macro|inc(?:bin|lude))\b|^\.text\b"
)
#: What stands before the text of inline assembly, and before the section that bytes are put in.
_ASSEMBLY = words("asm __asm __asm__ volatile __volatile __volatile__ inline goto section __section__ gnu::section")
#: Python's functions that run a text.
_RUNNERS = words("exec eval loads")
#: Functions that give memory which may hold machine code, and the names of protections with which it cannot run.
_MAPS = words("mmap mmap64 ::mmap")
_DATA = words("PROT_READ PROT_WRITE PROT_NONE")
_PROT_EXEC = 4
#: Words before a name that do not declare it.
_NO_TYPES = words("return else case new delete throw goto co_return co_await typedef using namespace sizeof")
_FREE_METHODS = PRODUCES | DESCRIBES | table("describes_in_cpp")
#: Methods that no container or vector class of C++ has.
_PLAINLY_HEAVY = HEAVY - COMMON - {"mv", "convolve"}
#: What makes a static variable harmless, or no variable.
_CONSTANT = words("const constexpr inline constinit __device__ __shared__ __forceinline__")
#: Characters of a macro's body and of its arguments, and of all that macros make: no text may explode.
_MOST_MACRO = 2000
_MOST_MADE = 200_000
#: Strings of one assembly, and words of a call's arguments that are read.
_MOST_PARTS = 400
_CALL = re.compile(rf"\b(\w+)\s*\(([^()]{{0,{_MOST_MACRO}}})\)")


class CppReader:
    """One reading of a C++ or CUDA text; `marks` receives what it finds."""

    def __init__(self, source: str, marks: Marks) -> None:
        self._marks = marks
        #: What the numbered strings in the text say.
        self._strings: list[str] = []
        #: Name -> parameters and body of a macro with parameters.
        self._macros: dict[str, tuple[list[str], str]] = {}
        #: Name -> body of a macro without parameters.
        self._bodies: dict[str, str] = {}
        #: Whether the text includes a header with half types.
        self._halves = False
        text = _COMMENT_OR_STRING.sub(self._numbered, _CONTINUED.sub("", source).replace("%:", "#"))
        text = _DIRECTIVE.sub(self._directive, text)
        text += self._expansions(text)
        aliases = dict(_ALIAS.findall(text))
        self._words = [_qualified(word, aliases) for word in _WORD.findall(text)]
        self._opened = _OPENED.findall(text)
        self._own = {name for before, name in _DECLARED.findall(text) if before not in _NO_TYPES}
        self._tensors = {name for pair in _TENSOR.findall(text) for name in pair if name}

    def read(self) -> None:
        """Check word by word."""
        words = [*self._words, ";"]
        for index, word in enumerate(self._words):
            before = words[index - 1] if index else ""
            behind = words[index + 1]
            if word[0] == '"':
                text = self._strings[int(word[1:])]
                self._string(text, asked=words[max(0, index - 2) : index] == ["attr", "("])
            elif _is_name(word) and before in {".", "->"}:
                self._method(word, words[index - 2] if index > 1 else "", behind)
            elif _is_name(word):
                for space in ["", *([] if word in self._own or "::" in word else self._opened)]:
                    self._name(f"{space}::{word}" if space else word, before, behind, own=word in self._own)
                if word == "TORCH_LIBRARY_IMPL" and words[index + 2 : index + 3] == ["aten"]:
                    self._marks.refuse("patches-torch")
                if word == "static" and _keeps_state(words[index + 1 : index + 40]):
                    self._marks.tag("module-cache")
                if word in _ASSEMBLY and behind == "(":
                    self._assembly(words[index + 2 :])
                if word == "PROT_EXEC" or (word in _MAPS and behind == "(" and _may_run(words[index + 2 :])):
                    self._marks.refuse("unreadable")
                if word == "catch":
                    self._marks.tag("try-except-fallback")
                if word in {"__global__", "__device__"} or (word == "extern" and behind[0] == '"'):
                    self._marks.own_kernel = True

    def _assembly(self, behind: Sequence[str]) -> None:
        """``asm(``: its text may be several strings, and macros of strings."""
        text = ""
        for word in behind[:_MOST_PARTS]:
            if word[0] == '"':
                text += self._strings[int(word[1:])]
            elif word in self._bodies:
                text += "".join(self._strings[int(number)] for number in re.findall(r'"(\d+)', self._bodies[word]))
            else:
                break
        text = re.sub(r"\\[nrt]", "\n", text)
        if _SYSTEM_CALL.search(text):
            self._marks.refuse("subprocess")
        if _MACHINE_CODE.search(text):
            self._marks.refuse("unreadable")

    def _numbered(self, found: re.Match[str]) -> str:
        """What stands for a comment or a string."""
        if not (found["raw"] or found["string"]):
            return " "
        self._strings.append(found["inside"] if found["raw"] else found["content"])
        return f' "{len(self._strings) - 1} '

    def _directive(self, found: re.Match[str]) -> str:
        """Note what a directive says; what it adds to the program."""
        kind, rest = found.groups()
        if kind == "include":
            name = rest.strip(' <>"')
            header = self._strings[int(name)] if name.isdigit() and '"' in rest else name
            self._halves |= any(part in header for part in ("cuda_fp16", "cuda_bf16", "torch", "ATen"))
            self._marks.add(rules_of(header, "headers"))
        elif kind == "pragma" and ("fast-math" in rest or "Ofast" in rest):
            self._marks.tag("fast-math")
        elif kind == "define" and (macro := _MACRO.match(rest)):
            name, parameters, body = macro.groups()
            if "##" in body:
                self._marks.tag("token-pasting")
            if parameters is None:
                self._bodies[name] = body
                return f"using {name} = {body};"
            self._macros[name] = [one.strip() for one in parameters.split(",")], body
            return f"{_joined(body, ' ')};"
        return ""

    def _expansions(self, text: str) -> str:
        """What calls of the file's macros become, without the macros in them."""
        made = ""
        for found in _CALL.finditer(text) if self._macros else ():
            parameters, body = self._macros.get(found[1], ([], ""))
            if body and len(made) < _MOST_MADE and len(body) < _MOST_MACRO:
                bound = dict(zip(parameters, map(str.strip, found[2].split(",")), strict=False))
                expanded = "".join(bound.get(part, part) for part in re.findall(r"\w+|\W+", body))
                if any(PATTERNS["sensitive"].fullmatch(_joined(name)) for name in _PASTED.findall(expanded)):
                    self._marks.refuse("token-pasting")
                made += f"{_joined(expanded)};"
        return made

    def _name(self, name: str, before: str, behind: str, *, own: bool) -> None:
        announced = _is_name(before or "(") and before not in _NO_TYPES
        called = behind == "(" and not announced
        self._marks.add(rule for rule in rules_of(name, "cpp") if not own and (called or not rule[1]))
        # `half` alone is too good a name for a number.
        if self._halves and name in {"half", "half2"} and not own and (_is_name(behind) or behind in "*&>("):
            self._marks.tag("half-types")
        # Called, or passed on to be called.
        if behind in {"(", ")", ",", ";"} or before == "&" or name.startswith("at::_ops::"):
            self._marks.operation(weight_in_cpp(name), name)

    def _method(self, name: str, receiver: str, behind: str) -> None:
        """``receiver.name(``: a tensor's operation, where the receiver is a tensor or the name leaves no doubt."""
        if name in {"data_ptr", "mutable_data_ptr", "const_data_ptr"}:
            self._marks.tag("data-pointer")
        if behind == "(" and receiver in self._tensors and name not in _FREE_METHODS:
            self._marks.operation(operation_weight(name), f".{name}")
        elif behind == "(" and name in _PLAINLY_HEAVY:
            self._marks.operation("heavy", f".{name}")

    def _string(self, text: str, *, asked: bool) -> None:
        """`asked`: whether it is the name of an attribute that a Python object is asked for."""
        if operator := re.match(r"(?:aten|prims)::(\w+)", text):
            self._marks.operation(operation_weight(operator[1]), operator[0])
        if asked and is_heavy(text):
            self._marks.operation("heavy", text)
        if asked and text in _RUNNERS:
            self._marks.refuse("unreadable")
        if asked:
            self._marks.add(
                rule for module in ("os", "sys") for rule in rules_of(f"{module}.{text}", "python") if rule[1]
            )
        if re.search(r"\b(mma|wgmma|tcgen05|cvt)\S*\.(tf32|f16|bf16|e4m3|e5m2)", text):
            self._marks.tag("half-types")
        if re.search(r"\.approx\b", text):
            self._marks.tag("fast-math")
        if PROCESS_FILES.match(text):
            self._marks.refuse("frames")


def _may_run(arguments: Sequence[str]) -> bool:
    """Whether the third of these arguments of a call is more than the protection of data."""
    place = depth = 0
    for word in arguments[:_MOST_PARTS]:
        depth += {"(": 1, ")": -1}.get(word, 0)
        if depth < 0 or place > 2:
            break
        if place == 2 and (int(word) & _PROT_EXEC if word.isdigit() else _is_name(word) and word not in _DATA):
            return True
        place += word == "," and not depth
    return place < 2


def _joined(text: str, pasted: str = "") -> str:
    """The text without ``#``, and with `pasted` in place of ``##``."""
    return re.sub(r"\s*##\s*", pasted, text).replace("#", " ")


def _is_name(word: str) -> bool:
    return word[0].isalpha() or word[0] == "_"


def _qualified(word: str, aliases: dict[str, str]) -> str:
    """A qualified name without blanks and aliases."""
    first, colons, rest = "".join(word.split()).partition("::")
    for _ in range(3 if colons else 0):
        first = aliases.get(first, first)
    return f"{first}{colons}{rest}"


def _keeps_state(behind: Sequence[str]) -> bool:
    """Whether a declaration behind ``static`` is a variable that is not constant; template arguments do not count."""
    declaration, end, _ = re.split(r"([;=({\[]|$)", re.sub(r"<[^<>]*>", "", " ".join(behind)), maxsplit=1)
    names = declaration.split()
    return end != "(" and _CONSTANT.isdisjoint(names) and any(map(PATTERNS["cpp_variables"].fullmatch, names))
