"""Hand-written starting kernels: ``seeds/<problem>/cpp*.py`` for CPUs, ``triton*.py`` and ``cuda*.py`` for CUDA devices.

Each is a self-contained ModelNew that declares its tunables. Nothing here imports one.
"""

from pathlib import Path

__all__ = ["seed_files"]

#: Device type -> how its files are called.
_PATTERNS = {"cpu": ("cpp*.py",), "cuda": ("triton*.py", "cuda*.py")}


def seed_files(problem_name: str, device_type: str) -> tuple[Path, ...]:
    """The hand-written starting kernels of a problem on ``"cpu"`` or ``"cuda"``, sorted; () when there are none."""
    folder = Path(__file__).parent / problem_name
    return tuple(sorted(path for pattern in _PATTERNS[device_type] for path in folder.glob(pattern)))
