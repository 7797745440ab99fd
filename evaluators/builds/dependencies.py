"""Which files a compile read, by the compiler's own report, and whether they still are as they were.

Only then is its product used again. A file that cannot be checked later (of /proc, of a device, changed during the
compile) makes a product that is not kept.
"""

import hashlib
import os
import re
import stat
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

#: Where a compiler finds its own files in a build directory, and those that the judge writes for each compile.
_OWN = ("out", "tmp", "light")
#: The words of make's rules: blanks, # and backslashes are escaped.
_WORD = re.compile(r"(?:[^\s\\]++|\\[ #\\]|\\(?!\n))+")
_ESCAPED = re.compile(r"\\([ #\\])")
#: Larger files (torch's libraries have a gigabyte) count as changed when their size or time does.
_MOST_BYTES = 32 << 20
#: Most files of one compile, and bytes of them that are read: torch's headers have 4,000 and 40 MB.
_MOST_FILES = 20_000
_MOST_READ = 512 << 20
#: By how much a file system's clock may be behind.
_CLOCK_NS = 10_000_000
#: Folders where headers may appear.
_SYSTEM = ("/usr/include", "/usr/local/include")

#: Digests by path. A name without a leading slash is a file of the request.
Reads = Mapping[str, str]


class FileDigests:
    """Digests of files and of folders' lists of names; computed again when size, times or number changed."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[tuple[int, ...], str]] = {}
        # Builds that end together read the same headers: the first one computes their digests.
        self._computing = threading.Lock()

    def of(self, path: str, *, changed_before: int | None = None, whole: bool = False) -> str:
        """The digest; "" for what is missing, no file or folder, or not older than `changed_before`, in nanoseconds.

        `whole`: by its content, however large it is.
        """
        try:
            found = os.stat(path)
            if changed_before is not None and max(found.st_mtime_ns, found.st_ctime_ns) >= changed_before:
                return ""
            identity = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns, whole)
            known = self._known.get(path)
            if known is None or known[0] != identity:
                with self._computing:
                    known = self._known.get(path)
                    if known is None or known[0] != identity:
                        known = self._known[path] = identity, _digest(path, found, whole=whole)
        except OSError:
            return ""
        return known[1]

    def size(self, path: str) -> int:
        """Bytes of a file, as they were when its digest was computed; 0 for what is no file."""
        known = self._known.get(path)
        if known is None:
            return os.path.getsize(path) if os.path.isfile(path) else 0
        return known[0][2]

    def unchanged(self, reads: Reads, files: Mapping[str, str]) -> bool:
        """Whether all is as it was read; `files`: digests of the request's files."""
        return all((self.of(path) if path[:1] == "/" else files.get(path)) == digest for path, digest in reads.items())


#: Of this process.
DIGESTS = FileDigests()


def reads_of(
    directory: Path,
    reports: Iterable[bytes],
    *,
    files: Mapping[str, str],
    folders: Iterable[str] = (),
    began: int,
    readable: Callable[[str], bool],
) -> Reads | None:
    """What a compile read; None where that cannot be known or checked later.

    Args:
        directory: of the build; the compiler worked in ``work`` inside.
        reports: dependency outputs in make's syntax.
        files: digests of the request's files, by path inside ``work``.
        folders: that it searched for headers.
        began: when the compile began, in nanoseconds since the epoch.
        readable: whether compilers may read a path.
    """
    result: dict[str, str] = {}
    before = began - _CLOCK_NS
    searched = {folder for folder in (*_SYSTEM, *folders) if Path(folder).is_dir()}
    named = list(dict.fromkeys(name for report in reports for name in _names(report.decode(errors="surrogateescape"))))
    if len(named) > _MOST_FILES:
        return None
    room = _MOST_READ
    for name in named:
        path = name if name.startswith("/") else os.path.normpath(directory / "work" / name)
        inside = os.path.relpath(path, directory / "work") if path.startswith(f"{directory}/") else None
        if inside is None:
            room -= min(DIGESTS.size(path), _MOST_BYTES)
            if room < 0 or not readable(path):
                return None
            result[path] = DIGESTS.of(path, changed_before=before)
            searched.add(os.path.dirname(path))
        elif inside in files:
            result[inside] = files[inside]
        elif not inside.startswith(tuple(f"../{own}/" for own in _OWN)) and os.path.lexists(path):
            return None  # the assembler also lists names of texts that nvcc made of a source
    result |= {folder: DIGESTS.of(folder, changed_before=before) for folder in searched}
    return result if all(result.values()) else None


def _names(rules: str) -> list[str]:
    """The files on which the first target of make's rules depends."""
    words = [_ESCAPED.sub(r"\1", word).replace("$$", "$") for word in _WORD.findall(rules)]
    start = next((number for number, word in enumerate(words) if word.endswith(":")), None)
    return [] if start is None else [word for word in words[start + 1 :] if not word.endswith(":")]


def _digest(path: str, found: os.stat_result, *, whole: bool) -> str:
    if stat.S_ISDIR(found.st_mode):
        return hashlib.sha256("\0".join(sorted(os.listdir(path))).encode(errors="surrogateescape")).hexdigest()
    if not stat.S_ISREG(found.st_mode):
        return ""
    if found.st_size > _MOST_BYTES and not whole:
        return f"{found.st_size} {found.st_mtime_ns}"
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
