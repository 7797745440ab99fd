"""The rules on a kernel's C++ and CUDA: names after macros and aliases, never the raw text."""

import re
from collections.abc import Sequence

from kbevolve.evaluators.lint.cpp_rules import CPP_DESCRIBES, is_sensitive, refusal_of, tag_of, weight_in_cpp
from kbevolve.evaluators.lint.cpp_tokens import PreprocessedText, is_name, preprocess
from kbevolve.evaluators.lint.operations import COMMON, DESCRIBES, HEAVY, PRODUCES, is_heavy, operation_weight
from kbevolve.evaluators.lint.python_rules import PROCESS_FILES
from kbevolve.evaluators.lint.tags import Marks
from kbevolve.evaluators.lint.words import words

_CODE = re.compile(r"#\s*(include|define|pragma)\b|__global__|__device__|[;{}]|::")
_TENSOR_TYPE = re.compile(r"(torch|at)::Tensor(Base)?|Tensor")
#: A value that is a tensor for certain: ``auto name = torch::…``.
_MADE_BY_TORCH = re.compile(r"(torch|at)::(?!vec|cuda|stable)")
#: Words before a name that do not declare it.
_NO_TYPES = words("return else case new delete throw goto co_return co_await typedef using namespace sizeof")
_FREE_METHODS = PRODUCES | DESCRIBES | CPP_DESCRIBES
#: Methods that no container or vector class of C++ has.
_PLAINLY_HEAVY = HEAVY - COMMON - {"mv", "convolve"}
#: A file-local or function-local variable that keeps something from call to call.
_STATIC = re.compile(
    r"(?!.*\b(const|constexpr|inline|constinit|__device__|__shared__|__forceinline__)\b)"
    r".*?\b((std::)?(unordered_map|map|vector|array|set|unordered_set|list|deque|optional|atomic)|((at|torch|c10)::)?Tensor|void|float"
    r"|double|int|bool|char|unsigned|long|auto|u?int\d+_t|size_t|cuda\w+_t|cublas\w+_t|cudnn\w+_t|(at::cuda::)?CUDAGraph"
    r"|__half|half)\b"
)


def looks_like_cpp(text: str) -> bool:
    """Whether a string is worth reading as C++; the rules go by names, so that prose passes them anyway."""
    return len(text) > 8 and _CODE.search(text) is not None


def check_cpp(source: str, marks: Marks) -> None:
    """Add to `marks` what a C++ or CUDA text does."""
    read = preprocess(source)
    _check_directives(read, marks)
    words = _qualified(read.tokens)
    opened = [words[i + 2] for i in range(len(words) - 2) if words[i : i + 2] == ["using", "namespace"]]
    own = _declared(words)
    tensors: set[str] = set()
    halves = any(part in name for name in read.includes for part in ("cuda_fp16", "cuda_bf16", "torch", "ATen"))
    for index, word in enumerate(words):
        before = words[index - 1] if index else ""
        behind = words[index + 1] if index + 1 < len(words) else ";"
        if word[0] == '"':
            _check_string(word[1:], words[max(0, index - 3) : index], marks)
        elif not is_name(word):
            continue
        elif before in {".", "->"}:
            _check_method(word, words[index - 2] if index > 1 else "", behind, tensors, marks)
        else:
            tensors |= _tensor_declared_at(words, index)
            spaces = [] if word in own or "::" in word else opened
            for name in [word, *(f"{space}::{word}" for space in spaces)]:
                _check_name(name, before, behind, word in own, marks)
            # `half` alone is too good a name for a number.
            if halves and word in {"half", "half2"} and word not in own and (is_name(behind) or behind in "*&>("):
                marks.tag("half-types")
            if word == "TORCH_LIBRARY_IMPL" and words[index + 2 : index + 3] == ["aten"]:
                marks.refuse("patches-torch")
            if word == "static" and _keeps_state(words[index + 1 : index + 40]):
                marks.tag("module-cache")
            if word == "catch":
                marks.tag("try-except-fallback")
            if word in {"__global__", "__device__"} or (word == "extern" and behind == '"C'):
                marks.own_kernel = True


def _qualified(tokens: Sequence[str]) -> list[str]:
    """Tokens with ``a :: b`` joined to ``a::b`` and namespace aliases undone."""
    words: list[str] = []
    joining = False
    for token in tokens:
        if joining and is_name(token) and words and is_name(words[-1]) and words[-1] not in _NO_TYPES:
            words[-1] += f"::{token}"
        elif token != "::":
            words.append(token)
        joining = token == "::"
    aliases = {
        words[index + 1]: words[index + 3]
        for index in range(len(words) - 3)
        if words[index] in {"namespace", "using"} and words[index + 2] == "=" and is_name(words[index + 3])
    }
    for index, word in enumerate(words if aliases else []):
        if index and words[index - 1] in {"namespace", "using"}:
            continue
        for _ in range(3):
            first, colons, rest = word.partition("::")
            word = f"{aliases.get(first, first)}{colons}{rest}"
        words[index] = word
    return words


def _declared(words: Sequence[str]) -> set[str]:
    """Names that the text declares itself, behind a type; ``int fork();`` only announces a library's function."""
    return {
        word
        for index, (before, word, behind) in enumerate(zip(words, words[1:], words[2:], strict=False))
        if is_name(word) and "::" not in word and is_name(before) and before not in _NO_TYPES
        if behind in {"=", ";", ",", "[", "{", ")"} or (behind == "(" and not _is_prototype(words, index + 2))
    }


def _is_prototype(words: Sequence[str], start: int) -> bool:
    """Whether the parenthesis at `start` ends in ``);``."""
    depth = 0
    for index in range(start, min(start + 200, len(words) - 1)):
        depth += (words[index] == "(") - (words[index] == ")")
        if depth == 0:
            return words[index + 1] in {";", "noexcept"}
    return False


def _tensor_declared_at(words: Sequence[str], index: int) -> set[str]:
    """The variable of a declaration ``at::Tensor& name`` or ``auto name = torch::…`` that starts here."""
    ahead = [word for word in words[index + 1 : index + 5] if word not in {"&", "*", "const"}]
    if not ahead or not is_name(ahead[0]):
        return set()
    made = words[index] == "auto" and ahead[1:2] == ["="] and len(ahead) > 2 and _MADE_BY_TORCH.match(ahead[2])
    return {ahead[0]} if made or _TENSOR_TYPE.fullmatch(words[index]) else set()


def _check_name(name: str, before: str, behind: str, own: bool, marks: Marks) -> None:
    tag, rule, weight = tag_of(name), refusal_of(name), weight_in_cpp(name)
    if tag and not own:
        marks.tag(tag)
    announced = is_name(before or "(") and before not in _NO_TYPES
    if rule and behind == "(" and not own and not announced:
        marks.refuse(rule)
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
    if previous[-2:] == ["attr", "("] or previous[-1:] == ["PyObject_GetAttrString"]:
        marks.operation("heavy" if is_heavy(text) else "", text)
    if re.search(r"\b(mma|wgmma|tcgen05|cvt)\S*\.(tf32|f16|bf16|e4m3|e5m2)", text):
        marks.tag("half-types")
    if re.search(r"\.approx\b", text):
        marks.tag("fast-math")
    if previous[-1:] == ["("] and re.search(r"(^|[\s;])(syscall|int \$0x80|svc #?0)\b", text):
        marks.refuse("subprocess")
    if PROCESS_FILES.match(text):
        marks.refuse("frames")


def _check_directives(read: PreprocessedText, marks: Marks) -> None:
    if read.pastes:
        marks.tag("token-pasting")
    if any(is_sensitive(name) for name in read.pasted):
        marks.refuse("token-pasting")
    for name in read.includes:
        if name.startswith(("sys/socket", "netinet/", "arpa/", "netdb", "curl/")):
            marks.refuse("network")
        if name.startswith(("sys/ptrace", "link.h", "linux/seccomp")):
            marks.refuse("foreign-library")
        if name.startswith(("cublas", "cudnn", "cusparse", "cusolver", "mkl", "cblas", "dnnl", "cutensor")):
            # The header alone computes nothing.
            marks.tag("third-party")
    if any("fast-math" in pragma or "Ofast" in pragma for pragma in read.pragmas):
        marks.tag("fast-math")


def _keeps_state(words: Sequence[str]) -> bool:
    """Whether a declaration behind ``static`` is a variable that is not constant; template arguments do not count."""
    kinds: list[str] = []
    depth = 0
    for word in words:
        depth += (word == "<") - (word == ">")
        if depth == 0 and word == "(":
            return False
        if depth == 0 and word in {";", "=", "{", "["}:
            break
        if depth == 0:
            kinds.append(word)
    return _STATIC.match(" ".join(kinds)) is not None
