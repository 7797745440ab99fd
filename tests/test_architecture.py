"""The house keeps its order: imports point one way, and starting is light."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("configs", "archive", "islands", "evaluators", "evolve")
#: Folder -> what it may import of ours, as prefixes.
ALLOWED = {
    "configs": ("kbevolve.configs",),
    "archive": ("kbevolve.archive", "kbevolve.configs"),
    "islands": ("kbevolve.islands", "kbevolve.archive.records", "kbevolve.configs.syntax"),
    "evaluators": ("kbevolve.evaluators", "kbevolve.archive.records", "kbevolve.configs"),
    "evolve": ("kbevolve",),
}
#: The packages (or single modules) of a folder, in order: each imports only those above it, and itself.
ORDER = {
    "evolve": (
        "llm",
        "state",
        "proposers",
        "strategies",
        "simulation",
        "search",
        "runs",
        "exports",
        "ask_tell",
        "inspect_tasks",
        "web",
        "cli",
    ),
    "evaluators": (
        "worker",
        "rejection",
        "disk_cache",
        "device",
        "lint",
        "sandbox",
        "program",
        "builds",
        "correctness",
        "analysis",
        "graph",
        "feedback",
        "candidate",
        "timing",
        "recipe",
        "evaluator",
        "generality",
        "judging",
        "fleet",
        "diagnostics",
    ),
}
#: Programs that run by path and may not know us at all, and data that is no code of ours.
PROGRAM = ROOT / "evaluators" / "worker"
DATA = (
    ROOT / "configs" / "problems",
    ROOT / "configs" / "seeds" / "L1",
    ROOT / "configs" / "seeds" / "L2",
    *(ROOT / "configs" / "examples").glob("*/"),
)


def imports_of(file: Path) -> Iterator[str]:
    """Every import, wherever it stands in the file: inside functions and under TYPE_CHECKING, too."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: a relative import"
            # ``from package import name``: the name may be a module.
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def code_files(folder: str) -> list[Path]:
    return [file for file in (ROOT / folder).rglob("*.py") if not any(file.is_relative_to(data) for data in DATA)]


@pytest.mark.parametrize("folder", FOLDERS)
def test_imports_point_one_way(folder: str) -> None:
    files = code_files(folder)
    assert files
    for file in files:
        for module in imports_of(file):
            assert module.split(".")[0] not in FOLDERS, f"{file} imports {module} without kbevolve in front"
            ours = module == "kbevolve" or module.startswith("kbevolve.")
            if ours and module not in ("kbevolve", "kbevolve.__version__"):
                assert module.startswith(ALLOWED[folder]), f"{file} imports {module}"
                # The worker is run by path and knows its own folder only.
                own = not file.is_relative_to(PROGRAM) or module.startswith("kbevolve.evaluators.worker.")
                assert own, f"{file}: the worker must not know us, but imports {module}"


@pytest.mark.parametrize("folder", ORDER)
def test_packages_import_only_those_above_them(folder: str) -> None:
    """Also when the import is lazy or for type checkers only."""
    order = ORDER[folder]
    inside = ROOT / folder
    there = {one.stem for one in inside.iterdir() if one.suffix == ".py" or (one / "__init__.py").exists()}
    assert there - {"__init__"} == set(order), "the folder and its ordered list differ"
    against = [
        f"{file.relative_to(ROOT)} imports {module}"
        for file in code_files(folder)
        for module in imports_of(file)
        if module.startswith(f"kbevolve.{folder}.")
        if order.index(module.split(".")[2]) > order.index(file.relative_to(inside).parts[0].removesuffix(".py"))
    ]
    assert not against, "\n".join(against)


@pytest.mark.parametrize(
    "command",
    [
        ["--help"],
        ["--version"],
        ["archive", "ls", "--help"],
        ["problems", "ls"],
        ["run", "--help"],
        ["ask", "--help"],
        ["tell", "--help"],
        ["mcp", "--help"],
    ],
)
def test_light_commands_import_nothing_heavy(command: list[str]) -> None:
    code = (
        "import sys\n"
        "from kbevolve.evolve.cli.main import main\n"
        "try:\n    main(sys.argv[1:])\n"
        "except SystemExit as exit:\n"
        "    heavy = {'torch', 'openevolve', 'openai', 'matplotlib', 'flask', 'ray', 'mcp'} & set(sys.modules)\n"
        "    assert not heavy, heavy\n"
        "    sys.exit(exit.code)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr


def test_the_picture_is_current() -> None:
    from docs.draw_architecture import PICTURE, picture  # which takes the order of packages from this file

    assert PICTURE.read_text() == picture(), "draw it again: python -m docs.draw_architecture"


def test_no_class_name_stands_for_two_things() -> None:
    places: dict[str, list[str]] = {}
    for folder in FOLDERS:
        for file in code_files(folder):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.ClassDef):
                    places.setdefault(node.name, []).append(str(file.relative_to(ROOT)))
    assert not {name: files for name, files in places.items() if len(files) > 1}


def test_python_is_parsed_in_one_place() -> None:
    """Python 3.11.7 fails now and then when two threads parse; `configs.syntax` knows, `ast.parse` does not."""
    files = [file for folder in (*FOLDERS, "benchmarks") for file in code_files(folder)]
    found = re.compile(r"\bast\.(parse|literal_eval)\(|\bfrom ast import .*\b(parse|literal_eval)\b")
    places = [
        f"{file.relative_to(ROOT)}: {line.strip()}"
        for file in files
        if file != ROOT / "configs" / "syntax.py"
        for line in file.read_text().splitlines()
        if found.search(line)
    ]
    assert not places, "kbevolve.configs.syntax has parse, expression and literal:\n" + "\n".join(places)


def test_no_file_is_longer_than_350_lines() -> None:
    files = (file for folder in FOLDERS for file in code_files(folder))
    assert not [str(file) for file in files if len(file.read_text().splitlines()) > 350]


@pytest.mark.parametrize("folder", ORDER)
def test_every_package_says_what_it_is(folder: str) -> None:
    for package in (file for file in code_files(folder) if file.name == "__init__.py"):
        docstring = ast.get_docstring(ast.parse(package.read_text()))
        assert docstring, f"{package.relative_to(ROOT)} has no docstring"
        assert len(docstring.split()) > 3, f"{package.relative_to(ROOT)} says nothing: {docstring}"
