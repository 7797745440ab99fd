"""What to build: sources and flags, checked, and named by their content."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath
from typing import Any, Self

from kbevolve.evaluators.builds.flags import Tool, checked
from kbevolve.evaluators.builds.sandboxed_compiler import is_readable
from kbevolve.evaluators.sandbox.build_protocol import BuilderUnavailable, BuildRefused
from kbevolve.evaluators.worker.build_request import MOST_BYTES, MOST_FILES, MOST_SOURCES, PATH

#: What torch turns into a file name and a macro's value without quotes.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")
#: g++ prefers X.gch to X, and would read whatever a kernel wrote there.
_PRECOMPILED = re.compile(r"\.gch(?:/|$)")
_CUDA = (".cu", ".cuh")
#: Most flags in one list, and characters of one.
_MOST_FLAGS, _MOST_FLAG = 200, 32_768
#: Programs that a kernel's variables may name: the judge's own are used anyway.
_USUAL_PROGRAM = re.compile(r"(?:/usr/(?:local/)?(?:cuda[\w.-]*/)?bin/)?(?:gcc|g\+\+|cc|c\+\+|nvcc)(?:-[0-9]{1,2})?")
_PROGRAM_VARIABLES = ("CC", "CXX", "NVCC", "PYTORCH_NVCC", "NVCC_CCBIN", "CUDAHOSTCXX")


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRequest:
    """One extension."""

    #: Name of the extension's module and file.
    name: str
    #: Paths and texts. The texts are compiled unchanged: even a space at the end of a line may be in a raw string.
    sources: tuple[tuple[str, str], ...]
    #: Paths and contents of further files that the sources may include; bytes that are no UTF-8 as surrogates.
    files: tuple[tuple[str, str], ...] = ()
    #: Extra words for the C++ compiler, nvcc and the linker, without quotes.
    cflags: tuple[str, ...] = ()
    cuda_cflags: tuple[str, ...] = ()
    ldflags: tuple[str, ...] = ()
    #: Extra folders of headers: absolute, or inside the request.
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
            BuildRefused: a field of another type, too much of anything, or a flag or variable that is not allowed.
            BuilderUnavailable: all is allowed, and the worker did not send sources.
        """
        name = tree.get("name")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise BuildRefused("a name that is no file name")
        _check_variables(tree.get("variables"))
        include_paths = _texts(tree.get("include_paths"))
        for path in include_paths:
            if not _may_include(path):
                raise BuildRefused(f"the folder of headers {path[:200]!r} is neither the kernel's nor the system's")
        flags = {
            field: checked(_texts(tree.get(field)), tool, _may_include)
            for field, tool in (("cflags", Tool.CXX), ("cuda_cflags", Tool.NVCC), ("ldflags", Tool.LINKER))
        }
        if tree.get("sources") is None:
            raise BuilderUnavailable("a build without sources")
        sources, files = _files(tree["sources"], MOST_SOURCES), _files(tree.get("files") or [], MOST_FILES)
        if not sources or not all("." in file for file, _ in sources):
            raise BuildRefused("no sources, or one without a suffix")
        paths = {file for file, _ in (*sources, *files)}
        if len(paths) < len(sources) + len(files) or sum(len(text) for _, text in (*sources, *files)) > MOST_BYTES:
            raise BuildRefused("two files of one name, or files too long")
        if any(str(folder) in paths for file in paths for folder in PurePosixPath(file).parents):
            raise BuildRefused("a file that is a folder, too")
        request = cls(
            name=name,
            sources=sources,
            files=files,
            **flags,
            include_paths=include_paths,
            with_cuda=tree.get("with_cuda") is True,
            architecture=architecture,
            plain=tree.get("plain") is True,
        )
        if request.with_cuda and not architecture:
            raise BuildRefused("CUDA without a GPU")
        return request

    def contents(self) -> dict[str, bytes]:
        """All files by their path."""
        return {file: text.encode(errors="surrogateescape") for file, text in (*self.sources, *self.files)}

    def key(self, toolchain: str) -> str:
        """Names the product: the same for the same content and the same compilers."""
        return digest(toolchain, asdict(self))


def is_cuda(file_name: str) -> bool:
    """Whether nvcc compiles it."""
    return file_name.endswith(_CUDA)


def digest(*parts: object) -> str:
    """64 hexadecimal digits for plain values."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode(errors="surrogatepass")).hexdigest()


def _files(value: Any, most: int) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, list | tuple) or len(value) > most:
        raise BuildRefused(f"files that are no list, or more than {most}")
    return tuple(map(_file, value))


def _file(value: Any) -> tuple[str, str]:
    match value:
        case [str(file), str(text)] if PATH.fullmatch(file) and not _PRECOMPILED.search(file):
            try:
                text.encode(errors="surrogateescape")
            except UnicodeEncodeError:
                raise BuildRefused("a source that is no text") from None
            return file, text
    raise BuildRefused("a source that is no path and text")


def _texts(value: Any) -> tuple[str, ...]:
    texts = value or ()
    if not isinstance(texts, list | tuple) or len(texts) > _MOST_FLAGS:
        raise BuildRefused(f"flags that are no list, or more than {_MOST_FLAGS}")
    if not all(isinstance(text, str) and len(text) <= _MOST_FLAG for text in texts):
        raise BuildRefused("a flag that is no text, or too long")
    return tuple(texts)


def _may_include(path: str) -> bool:
    """Whether a folder is inside the request, or of the system's."""
    if not path or not path.isprintable():
        return False
    return is_readable(path) if path.startswith("/") else ".." not in path.split("/")


def _check_variables(value: Any) -> None:
    """Refuse variables that would change a compiler; the judge's builders never see them."""
    for variable, text in value.items() if isinstance(value, dict) else ():
        usual = variable in _PROGRAM_VARIABLES and isinstance(text, str) and _USUAL_PROGRAM.fullmatch(text)
        if text is not None and not usual:
            raise BuildRefused(
                f"the variable {str(variable)[:100]}={str(text)[:100]!r} would change the compiler; leave it as it "
                "was, and give flags and folders to load() or load_inline()"
            )
