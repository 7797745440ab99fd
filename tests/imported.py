"""A kernel file as a module."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def imported(source: str, folder: Path, name: str) -> ModuleType:
    """Write `source` into a file of `folder`, where Triton reads its kernels' text, and import it under `name`."""
    path = folder / f"{name}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
