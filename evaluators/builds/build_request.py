"""What to build: sources and flags, checked, and named by their content."""

import hashlib
import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from kbevolve.evaluators.sandbox.build_protocol import BuildRefused
from kbevolve.evaluators.worker.build_request import MOST_BYTES

#: What torch turns into file names and a macro's value without quotes.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")
#: Characters that a shell interprets beyond splitting words; torch's builder passes flags to a shell.
_SHELL = re.compile(r"[`$;&|<>(){}*?!#\n\0~]")
_CUDA = (".cu", ".cuh")
#: Most sources, most flags in one list, and characters of one.
_MOST_SOURCES, _MOST_FLAGS, _MOST_FLAG = 16, 200, 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRequest:
    """One extension."""

    #: Name of the extension's module and file.
    name: str
    #: File names and texts. The texts are compiled unchanged: even a space at the end of a line may be in a raw string.
    sources: tuple[tuple[str, str], ...]
    #: Extra flags for the C++ compiler, nvcc and the linker, as torch would pass them.
    cflags: tuple[str, ...] = ()
    cuda_cflags: tuple[str, ...] = ()
    ldflags: tuple[str, ...] = ()
    #: Extra folders of headers, absolute.
    include_paths: tuple[str, ...] = ()
    #: Whether CUDA's headers and libraries are used.
    with_cuda: bool = False
    #: The GPU's architecture as torch spells it ("9.0a"); "" without CUDA.
    architecture: str = ""
    #: Use torch's own headers only (`builds.headers`).
    plain: bool = False

    @classmethod
    def from_json(cls, tree: Mapping[str, Any], *, architecture: str = "") -> Self:
        """The request of an untrusted process.

        Raises:
            BuildRefused: a field of another type, too much of anything, or flags that a shell would interpret.
        """
        name, sources = tree.get("name"), tree.get("sources")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise BuildRefused("a name that is no file name")
        if not isinstance(sources, list | tuple) or not 0 < len(sources) <= _MOST_SOURCES:
            raise BuildRefused(f"no sources, or more than {_MOST_SOURCES}")
        read = tuple(_source(source) for source in sources)
        if len({file for file, _ in read}) < len(read) or sum(len(text) for _, text in read) > MOST_BYTES:
            raise BuildRefused("two sources of one name, or sources too long")
        request = cls(
            name=name,
            sources=read,
            cflags=_flags(tree.get("cflags")),
            cuda_cflags=_flags(tree.get("cuda_cflags")),
            ldflags=_flags(tree.get("ldflags")),
            include_paths=_flags(tree.get("include_paths")),
            with_cuda=tree.get("with_cuda") is True,
            architecture=architecture,
            plain=tree.get("plain") is True,
        )
        if not all(path.startswith("/") for path in request.include_paths):
            raise BuildRefused("a folder of headers that is not absolute")
        if request.with_cuda and not architecture:
            raise BuildRefused("CUDA without a GPU")
        return request

    def key(self, toolchain: str) -> str:
        """Names the product: the same for the same content and the same compilers."""
        return digest(toolchain, asdict(self))


def is_cuda(file_name: str) -> bool:
    """Whether nvcc compiles it."""
    return file_name.endswith(_CUDA)


def digest(*parts: object) -> str:
    """64 hexadecimal digits for plain values."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode(errors="surrogatepass")).hexdigest()


def _source(value: Any) -> tuple[str, str]:
    match value:
        case [str(file), str(text)] if _NAME.fullmatch(file) and "." in file:
            try:
                text.encode()
            except UnicodeEncodeError:
                raise BuildRefused("a source that is no text") from None
            return file, text
    raise BuildRefused("a source that is no file name and text")


def _flags(value: Any) -> tuple[str, ...]:
    flags = value or ()
    if not isinstance(flags, list | tuple) or len(flags) > _MOST_FLAGS:
        raise BuildRefused(f"flags that are no list, or more than {_MOST_FLAGS}")
    for flag in flags:
        if not isinstance(flag, str) or len(flag) > _MOST_FLAG or _SHELL.search(flag):
            raise BuildRefused("a flag that is too long or that a shell would interpret")
        try:
            shlex.split(flag)
        except ValueError as error:
            raise BuildRefused(f"a flag with an open quote: {error}") from None
    return tuple(flags)
