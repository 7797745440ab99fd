"""Reads a kernel from a file that a user names."""

import os
from pathlib import Path

from kbevolve.archive.records import Kernel
from kbevolve.configs.errors import UsageError


def read_kernel(file: Path) -> Kernel:
    """The kernel in a ModelNew file; whether it is one, the judge says.

    Raises:
        UsageError: the file cannot be read, or is no text.
    """
    try:
        return Kernel.from_source(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{file}: {os.strerror(error.errno or 0)}; give a Python file that defines ModelNew") from None
    except UnicodeDecodeError:
        raise UsageError(f"{file}: not text in UTF-8; give a Python file that defines ModelNew") from None
