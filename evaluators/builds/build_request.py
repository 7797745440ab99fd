"""What is to be built: sources and flags, checked, and named by their content."""

import hashlib
import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from kbevolve.evaluators.worker.build_request import MOST_BYTES, MOST_FLAG, MOST_FLAGS, MOST_SOURCES

#: What torch turns into file names and a macro's value without quoting it.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")
#: What a shell would act on beyond splitting words; torch's builder leaves flags to one.
_SHELL = re.compile(r"[`$;&|<>(){}*?!#\n\0~]")
_CUDA = (".cu", ".cuh")


class BuildRefused(Exception):
    """This is no order, or none that can be carried out away from its worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRequest:
    """One extension."""

    #: Of the extension: its module's and its file's name.
    name: str
    #: File names and texts. The texts are compiled as they are: even a space at a line's end may stand in a raw string.
    sources: tuple[tuple[str, str], ...]
    #: Extra flags for the C++ compiler, for nvcc and for the linker, as torch would hand them on.
    cflags: tuple[str, ...] = ()
    cuda_cflags: tuple[str, ...] = ()
    ldflags: tuple[str, ...] = ()
    #: Extra folders of headers, absolute.
    include_paths: tuple[str, ...] = ()
    #: Whether CUDA's headers and libraries are at hand.
    with_cuda: bool = False
    #: A program instead of a library.
    standalone: bool = False
    #: Of the GPU that it shall run on, as torch spells it ("9.0a"); "" without CUDA.
    architecture: str = ""
    #: torch's own headers only, nothing tried that is lighter.
    plain: bool = False

    @classmethod
    def from_json(cls, told: Mapping[str, Any], *, architecture: str = "") -> Self:
        """The order that an untrusted process told.

        Raises:
            BuildRefused: a field of another type, too much of anything, or flags that a shell would act on.
        """
        name, sources = told.get("name"), told.get("sources")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise BuildRefused("a name that is no file's name")
        if not isinstance(sources, list | tuple) or not 0 < len(sources) <= MOST_SOURCES:
            raise BuildRefused(f"no sources, or more than {MOST_SOURCES}")
        read = tuple(_source(source) for source in sources)
        if len({file for file, _ in read}) < len(read) or sum(len(text) for _, text in read) > MOST_BYTES:
            raise BuildRefused("two sources of one name, or sources too long")
        order = cls(
            name=name,
            sources=read,
            cflags=_flags(told.get("cflags")),
            cuda_cflags=_flags(told.get("cuda_cflags")),
            ldflags=_flags(told.get("ldflags")),
            include_paths=_flags(told.get("include_paths")),
            with_cuda=told.get("with_cuda") is True,
            standalone=told.get("standalone") is True,
            architecture=architecture,
            plain=told.get("plain") is True,
        )
        if not all(path.startswith("/") for path in order.include_paths):
            raise BuildRefused("a folder of headers that is not absolute")
        if order.with_cuda and not architecture:
            raise BuildRefused("CUDA without a GPU")
        return order

    def to_json(self) -> dict[str, Any]:
        """Plain values; `from_json` takes them back, but for the architecture, which it is told."""
        return asdict(self)

    def made_plain(self) -> Self:
        """The same with torch's own headers only."""
        return replace(self, plain=True)

    def key(self, toolchain: str) -> str:
        """Names what comes out: the same for the same content and the same compilers."""
        return digest(toolchain, self.to_json())


def is_cuda(file_name: str) -> bool:
    """Whether nvcc compiles it."""
    return file_name.endswith(_CUDA)


def digest(*parts: object) -> str:
    """64 hexadecimal digits for plain values."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode(errors="surrogatepass")).hexdigest()


def _source(told: Any) -> tuple[str, str]:
    match told:
        case [str(file), str(text)] if _NAME.fullmatch(file) and "." in file:
            try:
                text.encode()
            except UnicodeEncodeError:
                raise BuildRefused("a source that is no text") from None
            return file, text
    raise BuildRefused("a source that is no file name and text")


def _flags(told: Any) -> tuple[str, ...]:
    flags = told or ()
    if not isinstance(flags, list | tuple) or len(flags) > MOST_FLAGS:
        raise BuildRefused(f"flags that are no list, or more than {MOST_FLAGS}")
    for flag in flags:
        if not isinstance(flag, str) or len(flag) > MOST_FLAG or _SHELL.search(flag):
            raise BuildRefused("a flag that is too long or that a shell would act on")
        try:
            shlex.split(flag)
        except ValueError as error:
            raise BuildRefused(f"a flag with an open quote: {error}") from None
    return tuple(flags)
