"""Reads a kernel from a file that the user named."""

from pathlib import Path

from kbevolve.archive.records import Kernel
from kbevolve.configs.text_file import read_text


def read_kernel(path: Path, *, option: str = "FILE") -> Kernel:
    """The kernel in a ModelNew file; the judge decides whether it is one.

    Args:
        path: the file.
        option: the argument or option that named it.

    Raises:
        UsageError: the file cannot be read, or is not text in UTF-8.
    """
    return Kernel.from_source(read_text(path, option=option, wants="file with class ModelNew"))
