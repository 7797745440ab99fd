"""Draw docs/architecture.svg from the imports: ``python -m docs.draw_architecture`` (a test checks that it is current).

A row a package, in the order in which packages may import each other. A mark in a row says that the package imports the
one whose number heads the column; all marks lie left of the diagonal, because imports point upwards only.
"""

import ast
from html import escape

from tests.test_architecture import FOLDERS, ORDER, ROOT, code_files, imports_of

PICTURE = ROOT / "docs" / "architecture.svg"
_COLOURS = {
    "configs": "#7a7a7a",
    "archive": "#8c6d31",
    "islands": "#2f7d4f",
    "evaluators": "#2b5f9e",
    "evolve": "#a23b53",
}
#: Pixels: the height of a row and width of a column, and where names, texts and the matrix begin.
_CELL, _NAME, _TEXT, _MATRIX, _TOP = 20, 38, 210, 890, 44
_RADIUS = 5


def packages() -> list[str]:
    """``configs``, ``archive``, …, ``evolve.cli``: the rows."""
    return [f"{folder}.{one}" if one else folder for folder in FOLDERS for one in ORDER.get(folder, ("",))]


def package_of(parts: tuple[str, ...]) -> str | None:
    """The row that a module of kbevolve belongs to; None for what is in no package."""
    if not parts or parts[0] not in FOLDERS:
        return None
    order = ORDER.get(parts[0])
    if order is None:
        return parts[0]
    return f"{parts[0]}.{parts[1]}" if len(parts) > 1 and parts[1] in order else None


def arrows() -> set[tuple[str, str]]:
    """Which packages import which."""
    found = set()
    for folder in FOLDERS:
        for file in code_files(folder):
            source = package_of(file.relative_to(ROOT).with_suffix("").parts)
            for module in imports_of(file):
                first, *rest = module.split(".")
                target = package_of(tuple(rest)) if first == "kbevolve" else None
                if source and target and source != target:
                    found.add((source, target))
    return found


def purpose_of(package: str) -> str:
    """What the first sentence of a package's docstring says, up to a semicolon."""
    path = ROOT.joinpath(*package.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    words = " ".join((ast.get_docstring(ast.parse(file.read_text())) or "").split("\n\n")[0].split())
    return words.split(". ")[0].split("; ")[0].rstrip(".")


def picture() -> str:
    """The SVG."""
    rows = packages()
    place = {package: number for number, package in enumerate(rows)}
    height, width = _TOP + _CELL * len(rows) + 14, _MATRIX + _CELL * len(rows) + 14
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'font-family="Helvetica, Arial, sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{_NAME}" y="18" fill="#555">A package imports only packages above it. '
        "A mark in its row names them.</text>",
    ]
    for package, number in place.items():
        folder, _, name = package.partition(".")
        colour, y = _COLOURS[folder], _TOP + _CELL * number
        x = _MATRIX + _CELL * number
        lines += [
            f'<rect x="8" y="{y}" width="{width - 16}" height="{_CELL - 1}" fill="{colour}" opacity="0.07"/>',
            f'<rect x="{x}" y="{y}" width="{_CELL - 1}" height="{_CELL - 1}" fill="{colour}" opacity="0.35"/>',
            f'<text x="30" y="{y + 14}" text-anchor="end" fill="#888">{number + 1}</text>',
            f'<text x="{_NAME}" y="{y + 14}" fill="{colour}" font-weight="bold">{folder}/{name}</text>',
            f'<text x="{_TEXT}" y="{y + 14}" fill="#222">{escape(purpose_of(package))}</text>',
            f'<text x="{x + 10}" y="{_TOP - 6}" text-anchor="middle" fill="#888" font-size="10">{number + 1}</text>',
        ]
    for source, target in sorted(arrows()):
        x, y = (_MATRIX + _CELL * place[target] + _CELL / 2, _TOP + _CELL * place[source] + _CELL / 2)
        colour = _COLOURS[target.partition(".")[0]]
        lines.append(
            f'<circle cx="{x:g}" cy="{y:g}" r="{_RADIUS}" fill="{colour}">'
            f"<title>{source} imports {target}</title></circle>"
        )
    return "\n".join([*lines, "</svg>", ""])


if __name__ == "__main__":
    PICTURE.write_text(picture())
