"""The rules on a kernel's C++ and CUDA: names after macros and aliases, never the raw text."""

import re
from collections.abc import Iterable, Sequence

from kbevolve.evaluators.lint.cpp_names import CPP_TELLS, is_sensitive, refusal_of, tag_of, weight_in_cpp
from kbevolve.evaluators.lint.operations import HEAVY, PRODUCES, TELLS, is_heavy, operation_weight
from kbevolve.evaluators.lint.preprocessor import Preprocessed, preprocess
from kbevolve.evaluators.lint.rules import PROCESS_FILES
from kbevolve.evaluators.lint.tags import Marks
from kbevolve.evaluators.lint.tokens import is_name
from kbevolve.evaluators.lint.words import words as set_of

_CODE = re.compile(r"#\s*(include|define|pragma)\b|__global__|__device__|[;{}]|::")

_TENSOR_TYPES = frozenset(f"{space}::{name}" for space in ("torch", "at") for name in ("Tensor", "TensorBase")) | {
    "Tensor"
}
#: Words before a name that do not declare it.
_DECLARING_FIRST = set_of("""
    return else case new delete throw goto co_return co_await typedef using namespace sizeof
""")
#: What may stand behind a type; `half` alone is too good a name for a number.
_BEHIND_TYPE = re.compile(r"[*&>(]|[^\W\d].*")
#: Types of static variables that keep something.
_CACHES = re.compile(
    r"(std::)?(unordered_map|map|vector|array|set|unordered_set|list|deque|optional)|((at|torch|c10)::)?Tensor|void|float|double|int|"
    r"bool|char|unsigned|long|auto|(u?int\d+_t)|size_t|cuda\w+_t|cublas\w+_t|cudnn\w+_t|(at::cuda::)?CUDAGraph|__half|half"
)


def looks_like_cpp(text: str) -> bool:
    """Whether a string is worth reading as C++; the rules go by names, so that prose passes them anyway."""
    return len(text) > 8 and _CODE.search(text) is not None


def check_cpp(source: str, definitions: Iterable[str], marks: Marks) -> None:
    """Tell `marks` what a C++ or CUDA text does."""
    read = preprocess(source, definitions)
    words = _qualified(read.tokens)
    _check_pasting(read, marks)
    _check_surroundings(read, marks)
    opened = _opened_namespaces(words)
    own = _declared(words)
    tensors: set[str] = set()
    halves = any(part in name for name in read.includes for part in ("cuda_fp16", "cuda_bf16", "torch", "ATen"))
    for index, word in enumerate(words):
        before = words[index - 1] if index else ""
        behind = words[index + 1] if index + 1 < len(words) else ";"
        if word[0] == '"':
            _check_string(word[1:], before, words[max(0, index - 3) : index], marks)
        elif is_name(word):
            if before in {".", "->"}:
                _check_method(word, words[index - 2] if index > 1 else "", behind, tensors, marks)
                continue
            if word in _TENSOR_TYPES or (word == "auto" and _is_made_by_torch(words, index)):
                tensors.update(_variable(words, index))
            for name in _readings(word, opened, own):
                _check_name(name, before, behind, word in own, marks)
            if halves and word in {"half", "half2"} and word not in own and _BEHIND_TYPE.fullmatch(behind):
                marks.tag("half-types")
            if word == "TORCH_LIBRARY_IMPL" and words[index + 2 : index + 3] == ["aten"]:
                marks.refuse("patches-torch")
            if word == "static":
                _check_static(words, index, marks)
            elif word == "catch":
                marks.tag("try-except-fallback")
            elif word in {"__global__", "__device__"} or (word == "extern" and behind == '"C'):
                marks.own_kernel = True


def _qualified(tokens: Sequence[str]) -> list[str]:
    """Tokens with ``a :: b`` joined to ``a::b`` and namespace aliases undone."""
    words: list[str] = []
    joining = False
    for token in tokens:
        if token == "::":
            joining = True
        elif joining and is_name(token) and words and is_name(words[-1]) and words[-1] not in _DECLARING_FIRST:
            words[-1] += f"::{token}"
            joining = False
        else:
            joining = False
            words.append(token)
    aliases = {
        words[index + 1]: words[index + 3]
        for index in range(len(words) - 3)
        if words[index] in {"namespace", "using"} and words[index + 2] == "=" and is_name(words[index + 3])
    }
    for _ in range(3 if aliases else 0):
        for index, word in enumerate(words):
            first, colons, rest = word.partition("::")
            meant = aliases.get(first)
            if (
                meant is not None
                and meant.partition("::")[0] != first
                and (index == 0 or words[index - 1] not in {"namespace", "using"})
            ):
                words[index] = f"{meant}{colons}{rest}"
    return words


def _opened_namespaces(words: Sequence[str]) -> list[str]:
    """Namespaces whose names are used without their prefix."""
    return [
        words[index + 2]
        for index in range(len(words) - 2)
        if words[index] == "using" and words[index + 1] == "namespace" and is_name(words[index + 2])
    ]


def _declared(words: Sequence[str]) -> set[str]:
    """Names that the text declares itself: a type or ``>``, ``*``, ``&`` stands before, and ``( = ; , [ {`` behind."""
    found = set()
    for index in range(1, len(words) - 1):
        word, before = words[index], words[index - 1]
        if is_name(word) and "::" not in word and words[index + 1] in {"(", "=", ";", ",", "[", "{", ")"}:
            typed = is_name(before) and before not in _DECLARING_FIRST
            pointed = (
                before in {"*", "&", ">"}
                and index > 1
                and (is_name(words[index - 2]) or words[index - 2] in {"*", ">"})
            )
            # `a * b` is no declaration unless a type begins the statement.
            begins = index > 2 and words[index - 3] in {";", "{", "}", "const", "static", ","}
            declared = typed or (pointed and begins and words[index + 1] in {"(", "="})
            # `int fork();` only announces what some library defines.
            if declared and not (words[index + 1] == "(" and _is_prototype(words, index + 1)):
                found.add(word)
    return found


def _is_prototype(words: Sequence[str], start: int) -> bool:
    """Whether the parenthesis at `start` ends in ``);``."""
    depth = 0
    for index in range(start, min(start + 200, len(words) - 1)):
        depth += (words[index] == "(") - (words[index] == ")")
        if depth == 0:
            return words[index + 1] in {";", "noexcept"}
    return False


def _readings(word: str, opened: Iterable[str], own: set[str]) -> list[str]:
    """What a name may mean: itself, or a name of an opened namespace unless the text declares it."""
    if word in own or "::" in word:
        return [word]
    return [word, *(f"{space}::{word}" for space in opened)]


def _check_name(name: str, before: str, behind: str, own: bool, marks: Marks) -> None:
    tag, rule, weight = tag_of(name), refusal_of(name), weight_in_cpp(name)
    if tag and not own:
        marks.tag(tag)
    announced = is_name(before or "(") and before not in _DECLARING_FIRST
    if rule and behind == "(" and not own and not announced:
        marks.refuse(rule)
    # Called, or handed on to be called.
    if weight and (behind in {"(", ")", ",", ";"} or before == "&" or name.startswith("at::_ops::")):
        marks.operation(weight, name)


def _check_method(name: str, receiver: str, behind: str, tensors: set[str], marks: Marks) -> None:
    """``receiver.name(``: a tensor's operation, where the receiver is a tensor or the name leaves no doubt."""
    if name in {"data_ptr", "mutable_data_ptr", "const_data_ptr"}:
        marks.tag("data-pointer")
    if behind != "(":
        return
    if receiver in tensors and name not in _FREE_METHODS:
        marks.operation(operation_weight(name), f".{name}")
    elif name in _PLAINLY_HEAVY:
        marks.operation("heavy", f".{name}")


_FREE_METHODS = PRODUCES | TELLS | CPP_TELLS
#: Methods that no container or vector class of C++ has.
_PLAINLY_HEAVY = HEAVY - set_of("dot inner solve inv det lu gemm qr inverse linear mv convolve mm") | {"mm"}


def _check_string(text: str, before: str, previous: Sequence[str], marks: Marks) -> None:
    operator = re.match(r"(?:aten|prims)::(\w+)", text)
    if operator is not None:
        marks.operation(operation_weight(operator[1]), text.split("(")[0])
    if previous[-2:] == ["attr", "("] or previous[-1:] == ["PyObject_GetAttrString"]:
        marks.operation("heavy" if is_heavy(text) else "", text)
    if re.search(r"\b(mma|wgmma|tcgen05|cvt)\S*\.(tf32|f16|bf16|e4m3|e5m2)", text):
        marks.tag("half-types")
    if re.search(r"\.approx\b", text):
        marks.tag("fast-math")
    if re.search(r"(^|[\s;])(syscall|int \$0x80|svc #?0)\b", text) and before == "(":
        marks.refuse("subprocess")
    if PROCESS_FILES.match(text):
        marks.refuse("frames")


def _check_pasting(read: Preprocessed, marks: Marks) -> None:
    if read.pastes:
        marks.tag("token-pasting")
    if any(is_sensitive(name) for name in read.pasted):
        marks.refuse("token-pasting")


def _check_surroundings(read: Preprocessed, marks: Marks) -> None:
    if any(name.startswith(("sys/socket", "netinet/", "arpa/", "netdb", "curl/")) for name in read.includes):
        marks.refuse("network")
    if any(name.startswith(("sys/ptrace", "link.h", "linux/seccomp")) for name in read.includes):
        marks.refuse("foreign-library")
    if any(
        name.startswith(("cublas", "cudnn", "cusparse", "cusolver", "mkl", "cblas", "dnnl", "cutensor"))
        for name in read.includes
    ):
        # The header alone computes nothing.
        marks.tag("third-party")
    if any("fast-math" in pragma or "Ofast" in pragma for pragma in read.pragmas):
        marks.tag("fast-math")


def _is_made_by_torch(words: Sequence[str], index: int) -> bool:
    """Whether ``auto name = torch::…`` starts here."""
    ahead = words[index + 1 : index + 5]
    if ahead[:1] == ["&"]:
        ahead = ahead[1:]
    return (
        len(ahead) > 2
        and ahead[1] == "="
        and ahead[2].startswith(("torch::", "at::"))
        and not ahead[2].startswith(("at::vec", "at::cuda", "torch::stable"))
    )


def _variable(words: Sequence[str], index: int) -> Iterable[str]:
    """The variable whose type stands at `index`."""
    for word in words[index + 1 : index + 4]:
        if is_name(word):
            if word not in {"const"}:
                return [word]
        elif word not in {"&", "*"}:
            break
    return []


def _check_static(words: Sequence[str], index: int, marks: Marks) -> None:
    """A static variable that is not constant keeps state from call to call."""
    kinds: list[str] = []
    depth = 0
    for word in words[index + 1 : index + 40]:
        if word == "<":
            depth += 1
        elif word == ">":
            depth -= 1
        elif (
            word in {"const", "constexpr", "inline", "__device__", "__shared__", "__forceinline__", "constinit"}
            and depth == 0
        ) or (word == "(" and depth == 0):
            return
        elif word in {";", "=", "{", "["} and depth == 0:
            break
        elif is_name(word):
            kinds.append(word)
    if any(_CACHES.fullmatch(kind) for kind in kinds):
        marks.tag("module-cache")
