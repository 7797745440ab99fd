"""What pip installs works far from the checkout."""

import fcntl
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.test_architecture import FOLDERS, ROOT

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the source distribution."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
    folder = shared / "dist"
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, "."]
    with (shared / "dist.lock").open("w") as lock:  # two builds would write the same files of the checkout
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel alone in a folder; what it depends on is in the environment."""
    site = tmp_path_factory.mktemp("site")
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(site)
    return site


def test_the_wheel_holds_kbevolve_only_and_every_data_file(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name.split("/")[0].split("-")[0] for name in names} == {"kbevolve"}
    wanted = {
        f"kbevolve/{file.relative_to(ROOT)}"
        for folder in FOLDERS
        for file in (ROOT / folder).rglob("*")
        if file.is_file() and file.suffix in {".py", ".yaml", ".jinja", ".json", ".css", ".js", ".svg", ".h"}
    }
    assert wanted <= names, sorted(wanted - names)


def test_the_source_distribution_holds_the_problems(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        assert any(name.endswith("configs/problems/L1/matmul.py") for name in archive.getnames())


def test_the_installed_commands_work_outside_the_checkout(installed: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(installed), "KBEVOLVE_CACHE": str(tmp_path / "cache")}

    def kbevolve(*words: str) -> str:
        """What the installed command prints; its code is not the checkout's."""
        program = "import kbevolve, runpy, sys; assert kbevolve.__file__.startswith(sys.argv.pop(1)); "
        program += "runpy.run_module('kbevolve', run_name='__main__')"
        done = subprocess.run(
            [sys.executable, "-P", "-c", program, installed, *words],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    kbevolve("run", "--problem", "L1/gelu", "--preset", "smoke", "--generations", "1", "--device", "cpu")
    kbevolve("plot", "-o", "best.png")
    assert (tmp_path / "best.png").read_bytes().startswith(b"\x89PNG")
    assert "matmul" in kbevolve("bench-search", "--seeds", "2", "--budgets", "25", "--jobs", "2")
