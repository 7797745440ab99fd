import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from kbevolve.archive.lineage import main_line
from kbevolve.archive.records import Placement, ProblemCard, Run
from kbevolve.archive.report.lineage_layout import lineage_layout
from kbevolve.archive.report.run_figures import lineage_tree, niche_map, phase_times, roofline, speedup_distribution
from kbevolve.archive.report.style import drawn, svg_element
from kbevolve.archive.store import Archive
from kbevolve.archive.throughput import throughput_of
from kbevolve.configs.problem import parse_problem
from kbevolve.evolve.web.progress import niche_elites
from kbevolve.evolve.web.report import markdown, markdown_code, write_report
from kbevolve.islands.niches import LEVELS
from tests.evolve.web.conftest import SCRIPT, make_hostile
from tests.small_archive import PROBLEM, Sample


class Tags(HTMLParser):
    """The elements of a page and their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_one_file_holds_everything(
    make_archive: Callable[..., Sample], tmp_path: Path, kbevolve: Callable[..., Any]
) -> None:
    sample, file = make_archive(confirmed=True), tmp_path / "out.html"
    kbevolve("report", "-o", file, "--archive", sample.path)
    assert sorted(tmp_path.glob("out*")) == [file]
    page = file.read_text()
    tags = Tags(page).found
    assert sum(tag == "svg" and attributes.get("role") == "img" for tag, attributes in tags) >= 4
    loaded = [
        value for _, attributes in tags for name, value in attributes.items() if name in ("src", "href", "xlink:href")
    ]
    assert all(value and value.startswith(("#", "data:")) for value in loaded)
    assert {tag for tag, _ in tags}.isdisjoint({"script", "link", "iframe", "form"})
    policy = next(one["content"] for tag, one in tags if tag == "meta" and one.get("http-equiv"))
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert "How the best kernel came to be" in page
    assert f'id="k-{sample.best}"' in page
    assert "confirmed" in page


@pytest.mark.slow
def test_markdown_names_its_pictures(make_archive: Callable[..., Sample], tmp_path: Path) -> None:
    sample, file = make_archive(confirmed=True), tmp_path / "my report.md"
    with Archive(sample.path, read_only=True) as archive:
        written = write_report(archive, "latest", file)
    text = file.read_text()
    named = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text)
    assert sorted(named) == sorted(picture.name.replace(" ", "%20") for picture in written[1:])
    assert all(picture.read_bytes().startswith(b"\x89PNG") for picture in written[1:])
    assert text.startswith("# L1/matmul: ")
    assert f"| `{sample.best}` |" in text


@pytest.mark.parametrize("ending", ["html", "md"])
def test_a_run_without_a_kernel_is_reported(ending: str, tmp_path: Path) -> None:
    problem = parse_problem(PROBLEM, name="L1/matmul", path=Path("matmul.py"))
    with Archive(tmp_path / "kbevolve.db") as archive:
        archive.add_problem(problem)
        archive.add_run(
            Run(id="r", problem_name="L1/matmul", problem=problem.id, device="cpu/x", seed=0, settings="{}")
        )
        write_report(archive, "latest", tmp_path / f"empty.{ending}")
    assert "othing correct yet" in (tmp_path / f"empty.{ending}").read_text()


@pytest.mark.slow
def test_nothing_of_a_hostile_archive_becomes_markup(small_archive: Sample, tmp_path: Path) -> None:
    path = make_hostile(small_archive)
    with Archive(path, read_only=True) as archive:
        for ending in ("html", "md"):
            write_report(archive, "latest", tmp_path / f"out.{ending}")
    tags = Tags((tmp_path / "out.html").read_text()).found
    assert {tag for tag, _ in tags}.isdisjoint({"script", "img"})
    assert not [name for _, attributes in tags for name in attributes if name.startswith("on")]
    assert "<script" not in (tmp_path / "out.md").read_text()


def test_other_endings_and_folders_that_are_missing_are_one_line(
    small_archive: Sample, tmp_path: Path, kbevolve: Callable[..., Any]
) -> None:
    for name, words in (
        ("out.pdf", "end it in .html or .md"),
        ("none/out.html", "No such file"),
        ("none/o.md", "No such"),
    ):
        done = kbevolve("report", "-o", tmp_path / name, "--archive", small_archive.path)
        assert words in done.err


def test_markdown_is_escaped() -> None:
    assert markdown(f"a|b*c* [x](y) {SCRIPT}\n# d") == markdown(f"a|b*c* [x](y) {SCRIPT} # d")
    assert markdown("a|b*c_d [x] <i> `") == r"a\|b\*c\_d \[x\] &lt;i> \`"
    assert markdown_code("a`b|c\n<d") == "`a'b¦c ‹d`"


@pytest.mark.slow
def test_every_figure_is_drawn_as_svg_and_png(small_archive: Sample) -> None:
    with Archive(small_archive.path, read_only=True) as archive:
        run = small_archive.run
        entries, placements = archive.outline(run), archive.runs.placements(run.id)
        throughput = throughput_of(
            run, archive.runs.births(run.id, texts=False), archive.runs.evaluations(run.id).values()
        )
    kept = [Placement(run=run.id, island=0, niche="m3c2d1l0", kernel=small_archive.best, generation=1, via="birth")]
    facts: dict[str, Any] = {"problem": "p", "device": "d", "precision": "fp32", "roofline_ms": {"fp32": 0.1}}
    facts |= {"input_bytes": 10**8, "output_bytes": 10**8}
    figure = lineage_tree(lineage_layout(entries, placements), [], "L1/x", 2.5)
    (finding,) = [text.get_text() for text in figure.texts if "kernels" in text.get_text()]
    assert finding.endswith(" kernels, the best at 2.50×")
    compute = ProblemCard(**facts, flops=10**11, peaks={"copy": 4e12, "fp32": 6e13}, memory_ms=0.05)
    memory = ProblemCard(**facts, memory_ms=0.1)
    line = [one.kernel or "" for one in main_line(small_archive.best, entries)]
    for draw in (
        lambda: speedup_distribution(entries, "L1/$x$ <b>"),
        lambda: speedup_distribution([], "L1/none"),
        lambda: niche_map(niche_elites(entries, kept), LEVELS, "L1/x"),
        lambda: niche_map({}, LEVELS, "L1/x"),
        lambda: roofline(entries, compute, "L1/x"),
        lambda: roofline(entries, memory, "L1/x"),
        lambda: roofline([], memory, "L1/x"),
        lambda: phase_times(throughput, "L1/x"),
        lambda: lineage_tree(lineage_layout(entries, placements), line, "L1/x"),
        lambda: lineage_tree(lineage_layout([]), [], "L1/x"),
    ):
        element = ElementTree.fromstring(svg_element(draw, 'a "name"'))
        assert element.get("aria-label") == 'a "name"'
        assert "mathdefault" not in "".join(element.itertext())
        assert drawn(draw, ".png").startswith(b"\x89PNG")
