"""A file of findings that is being written: whoever is killed, its lines are whole, and each kernel has one."""

import contextlib
import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from kbevolve.archive.batch_results import BEGINNING, Conditions, Finding, from_line, read_findings, to_line
from kbevolve.archive.jsonl import append_whole
from kbevolve.configs.errors import ArchiveError, RecordError, UsageError


class FindingsFile:
    """Appends findings to a file; one is on the disk when `append` returns. For one thread of one process.

    A last line that was cut short by a kill is taken off; the kernel of that line is judged again. Nothing else of what
    is there is ever changed, and a file that holds anything but findings is refused.

    Args:
        path: the file; it is made when it is missing.

    Raises:
        UsageError: it cannot be opened, holds something else, or another process writes it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        #: What each line in the file is the finding of.
        self.known: dict[Conditions, Finding] = {}
        #: Whether a line that was cut short has been taken off.
        self.repaired = False
        try:
            is_new = not path.exists()
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise UsageError(
                f"{path}: {error.strerror}; --out wants a file in a directory that you may write to"
            ) from None
        try:
            self._lock()
            if is_new:
                _keep_entry(path)
            self._read()
        except BaseException:
            os.close(self._file)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._file)

    def append(self, finding: Finding) -> None:
        """Write one more line and wait until the disk has it.

        Raises:
            ArchiveError: the disk does not take it; the lines before it are kept.
        """
        try:
            append_whole(self._file, f"{to_line(finding)}\n", wait=True)
        except OSError as error:
            raise ArchiveError(
                f"{self.path}: {error.strerror}; make room and give the same command again (what was judged is kept)"
            ) from None
        self.known[finding.conditions] = finding

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"another process is writing {self.path}; wait for it, or name another --out") from None
        except OSError:
            pass  # a file system of a cluster that knows no locks: its users must not write one file twice

    def _read(self) -> None:
        read = read_findings(self.path.read_bytes())
        if read.bad:
            number, why = read.bad[0]
            raise UsageError(f"{self.path}, line {number}: {why}; only findings are added to findings: another --out")
        self.known = {finding.conditions: finding for _, finding in read.findings}
        if read.torn:
            self._mend(read.torn, read.whole)

    def _mend(self, torn: bytes, whole: int) -> None:
        with contextlib.suppress(RecordError, UnicodeDecodeError):
            finding = from_line(torn.decode("utf-8"))
            os.write(self._file, b"\n")
            self.known[finding.conditions] = finding
            return
        # A file system may leave zeros where a power cut took the data.
        text, beginning = torn.rstrip(b"\0"), BEGINNING.encode()
        if not (text.startswith(beginning) or beginning.startswith(text)):
            raise UsageError(
                f"{self.path} ends in what is no finding; only findings are added to findings: another --out"
            )
        os.ftruncate(self._file, whole)
        self.repaired = True


def _keep_entry(path: Path) -> None:
    """Have the disk keep the directory's entry of a new file, too."""
    with contextlib.suppress(OSError):  # some file systems have nothing to keep
        folder = os.open(path.absolute().parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
