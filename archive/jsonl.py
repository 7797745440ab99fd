"""Appending a line to a file, whole or not at all."""

import contextlib
import os


def append_whole(file: int, line: str, *, wait: bool = False) -> None:
    """Append to a file that was opened with O_APPEND; a part of a line on a full disk is removed again.

    Args:
        file: its descriptor; no other process appends at the same time.
        line: in ASCII, with its line end.
        wait: whether to wait for the disk (fsync).

    Raises:
        OSError: the disk does not take it.
    """
    before = os.fstat(file).st_size
    text = line.encode("ascii")
    try:
        while text:  # an almost full disk takes a part
            text = text[os.write(file, text) :]
        if wait:
            os.fsync(file)
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(file, before)
        raise
