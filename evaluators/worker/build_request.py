"""A build by torch's extension builder as plain values, which another process can carry out.

A request holds texts and flags: the sources, and the files of this process's own folders that they may include. A file
goes along when its name occurs in a text that goes along; what the compiler then reads of them, it reports itself.
"""

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

#: Most bytes of all files, sources, and further files: a kernel has two sources of some kilobytes.
MOST_BYTES = 2 << 20
MOST_SOURCES, MOST_FILES = 16, 64
#: A path inside a request.
PATH = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}/){0,12}[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}")
#: Files of own folders that are looked at.
_MOST_SEEN = 4000

#: Variables that name programs and folders of programs; only the judge's own values are used.
_PROGRAMS = (
    *("CXX", "CC", "NVCC", "PYTORCH_NVCC", "NVCC_CCBIN", "CUDAHOSTCXX", "GCC_EXEC_PREFIX", "COMPILER_PATH"),
    *("DEPENDENCIES_OUTPUT", "SUNPRO_DEPENDENCIES"),
)
#: Variables whose changed values are flags as well.
_FLAGS = ("CPATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")
_WORD = re.compile(rb"[\w.+-]+")
_QUOTED_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)
_FOLDER = re.compile(r"((?:-I|-isystem|-iquote|-idirafter)[ =]*['\"]?)([^ '\"]+)")


def compiler_variables() -> dict[str, str | None]:
    """The present values of the variables that compilers obey."""
    return {name: os.environ.get(name) for name in (*_PROGRAMS, *_FLAGS)}


def request_of(build: Mapping[str, Any], variables: Mapping[str, str | None]) -> dict[str, Any]:
    """The request for a build, which the judge checks; without sources where a request cannot hold them.

    Args:
        build: the arguments of torch's `_write_ninja_file_and_build_library`, by name.
        variables: `compiler_variables` before the kernel was imported.
    """
    changed = {name: value for name, value in compiler_variables().items() if value != variables[name]}
    searched = [*_split(changed, "CPATH"), *_split(changed, "CPLUS_INCLUDE_PATH")]
    flags = {
        "cflags": _texts(build.get("extra_cflags")),
        "cuda_cflags": [
            *_words(changed, "NVCC_PREPEND_FLAGS"),
            *_texts(build.get("extra_cuda_cflags")),
            *_words(changed, "NVCC_APPEND_FLAGS"),
        ],
        "ldflags": [*_texts(build.get("extra_ldflags")), *(f"-L{path}" for path in _split(changed, "LIBRARY_PATH"))],
        "include_paths": [os.path.abspath(path) for path in [*_texts(build.get("extra_include_paths")), *searched]],
    }
    here = Path(build["build_directory"])  # where torch's builder runs
    for name in ("cflags", "cuda_cflags"):
        joined = " ".join(flags[name])  # as torch passes them to a shell
        flags[name] = [_FOLDER.sub(lambda found: f"{found[1]}{here / found[2]}", joined)] if joined else []
    named = (found[2] for found in _FOLDER.finditer(" ".join(flags["cflags"] + flags["cuda_cflags"])))
    given = list(dict.fromkeys(Path(os.path.abspath(path)) for path in build["sources"]))
    folders = {*(path.parent for path in given), *map(Path, flags["include_paths"]), *(here / path for path in named)}
    private = {folder for folder in folders if _is_private(folder)}
    contents = {} if _is_special(build) else _contents(given, private)
    root = os.path.commonpath([*(path.parent for path in (*given, *contents)), *private])
    texts = [[os.path.relpath(path, root), _text(content)] for path, content in contents.items()]
    sources, files = texts[: len(given)], texts[len(given) :]
    fits = len(sources) <= MOST_SOURCES and len(files) <= MOST_FILES and all(PATH.fullmatch(path) for path, _ in texts)
    return {
        "name": str(build["name"]),
        "sources": sources if fits and contents else None,
        "files": files,
        **{name: [_inside(text, root, private) for text in texts] for name, texts in flags.items()},
        "with_cuda": bool(build.get("with_cuda")),
        "variables": {name: value for name, value in changed.items() if name in _PROGRAMS},
    }


def _is_special(build: Mapping[str, Any]) -> bool:
    """Whether it is more than a library of C++ and CUDA."""
    return bool(build.get("with_sycl") or build.get("extra_sycl_cflags") or build.get("is_standalone"))


def _texts(given: Any) -> list[str]:
    if isinstance(given, str):
        raise ValueError("torch takes a list")  # and would take the letters of a string for flags
    return [str(flag).strip() for flag in given or ()]


def _split(changed: Mapping[str, str | None], name: str) -> list[str]:
    return [entry for entry in (changed.get(name) or "").split(os.pathsep) if entry]


def _words(changed: Mapping[str, str | None], name: str) -> list[str]:
    return [shlex.quote(word) for word in shlex.split(changed.get(name) or "")]


def _contents(sources: Sequence[Path], folders: Iterable[Path]) -> dict[Path, bytes]:
    """The sources, and the files whose names occur in them; empty where a request cannot hold them."""
    near: dict[bytes, set[Path]] = {}
    for path in islice((path for folder in folders for path in _walk(folder)), _MOST_SEEN):
        if path.suffix:
            near.setdefault(os.fsencode(path.name), set()).add(path)
    contents: dict[Path, bytes] = {}
    waiting = list(sources)
    while waiting:
        path = waiting.pop(0)
        try:
            contents[path] = content = path.read_bytes()
            included = list(map(os.fsdecode, _QUOTED_INCLUDE.findall(content)))
            beside = {Path(os.path.normpath(path.parent / name)) for name in included}
            beside = {other for other in beside if _is_private(other) and other.is_file()}
        except (OSError, ValueError):
            return {}
        if any(Path(name) in beside for name in included) or sum(map(len, contents.values())) > MOST_BYTES:
            return {}  # it names this process's own folders, or is too long
        found = {other for name in set(_WORD.findall(content)) for other in near.get(name, ())} | beside
        waiting += sorted(found - set(contents) - set(waiting))
    return contents


def _walk(folder: Path) -> Iterator[Path]:
    for place, _, names in os.walk(folder):
        yield from (Path(place, name) for name in names)


def _text(content: bytes) -> str:
    return content.decode(errors="surrogateescape")


def _inside(text: str, root: str, folders: Iterable[Path]) -> str:
    """A flag or a folder with this process's own folders named as they are inside the request."""
    for folder in sorted(map(str, folders), key=len, reverse=True):
        text = text.replace(folder, os.path.relpath(folder, root))
    return text


def _is_private(path: Path) -> bool:
    """Whether the path is in this process's own directories, which a builder cannot read."""
    own = [os.environ.get(name) for name in ("HOME", "TMPDIR")] + [os.getcwd()]
    return any(path.resolve().is_relative_to(Path(folder).resolve()) for folder in own if folder)
