"""A run as one file: HTML with everything inside, or Markdown with pictures beside it."""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader
from markupsafe import Markup

from kbevolve.archive.formatting import device_words
from kbevolve.archive.lineage import main_line
from kbevolve.archive.report.curves import curve_of
from kbevolve.archive.report.figures import best_so_far
from kbevolve.archive.report.lineage_layout import lineage_layout
from kbevolve.archive.report.run_figures import lineage_tree, niche_map, phase_times, roofline, speedup_distribution
from kbevolve.archive.report.style import save, svg_element
from kbevolve.archive.store import Archive
from kbevolve.archive.throughput import throughput_of
from kbevolve.configs.errors import ArchiveError, UsageError
from kbevolve.evolve.web.code import source_lines
from kbevolve.evolve.web.cost import cost_of
from kbevolve.evolve.web.progress import idea_records, niche_elites
from kbevolve.evolve.web.rendering import prepare
from kbevolve.evolve.web.snapshot import RunFacts, Snapshot
from kbevolve.evolve.web.story import story
from kbevolve.islands.niches import LEVELS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: What a report may be, by the ending of its file.
ENDINGS = (".html", ".md")
#: Kernels and ideas of the tables.
_SHOWN = 20
_MARKDOWN = re.compile(r"([\\`*_\[\]#|~])")


def write_report(archive: Archive, which: str, file: Path) -> list[Path]:
    """Write the report of a run and return the files.

    Raises:
        UsageError: the file ends in neither ``.html`` nor ``.md``.
        ArchiveError: there is no such run, or the file cannot be written.
    """
    if file.suffix.lower() not in ENDINGS:
        raise UsageError(f"{file}: end it in {' or '.join(ENDINGS)}")
    facts = Snapshot(archive).facts(which)
    figures, values = _figures(archive, facts), _values(archive, facts)
    environment = Environment(loader=PackageLoader("kbevolve.evolve.web"))
    prepare(environment)
    environment.filters |= {"md": markdown, "md_code": markdown_code}
    environment.globals["static"] = True
    written = [file]
    try:
        if file.suffix.lower() == ".html":
            style = (Path(__file__).parent / "static" / "style.css").read_text(encoding="utf-8")
            shown = {name: Markup(svg_element(draw, name)) for name, draw in figures.items()}  # matplotlib escapes
            text = environment.get_template("report.html.jinja").render(figures=shown, style=Markup(style), **values)
        else:
            pictures = {name: file.with_name(f"{file.stem}-{name.replace(' ', '-')}.png") for name in figures}
            for name, picture in pictures.items():
                save(figures[name], picture)
            written += pictures.values()
            names = {name: picture.name for name, picture in pictures.items()}
            text = environment.get_template("report.md.jinja").render(figures=names, **values)
        file.write_text(text, encoding="utf-8", errors="replace")
    except OSError as error:
        raise ArchiveError(f"{file}: {error.strerror}; name a file in a directory that you may write to") from None
    return written


def markdown(text: object) -> Markup:
    """Text that Markdown shows as it is, in one line."""
    flat = " ".join(str(text).split()).replace("&", "&amp;").replace("<", "&lt;")
    return Markup(_MARKDOWN.sub(r"\\\1", flat))


def markdown_code(text: object) -> Markup:
    """Text between backquotes, for which Markdown has no escape; in a table, and in one line."""
    flat = " ".join(str(text).split())
    return Markup("`" + flat.translate(str.maketrans("`|<", "'¦‹")) + "`")


def _values(archive: Archive, facts: RunFacts) -> dict[str, Any]:
    runs, best = archive.runs, facts.summary.best_kernel
    return {
        "facts": facts,
        "archive_path": archive.path,
        "steps": story(archive, facts, best) if best else [],
        "kernels": [one for one in facts.ranked if one.speedup and one.kernel not in facts.failed][:_SHOWN],
        "ideas": idea_records(facts.entries)[:_SHOWN],
        "counts": Counter(one.verdict for one in facts.first.values() if one.verdict is not None),
        "states": Counter(one.state for one in facts.entries),
        "tokens": runs.tokens(facts.run.id),
        "cost": cost_of(archive, facts.run),
        "lines": source_lines(archive.kernels.get(best).source) if best else [],
    }


def _figures(archive: Archive, facts: RunFacts) -> Mapping[str, Callable[[], "Figure"]]:
    """Name -> what draws it; figures without anything to show are left out."""
    run, problem = facts.run, facts.run.problem_name
    placements = archive.runs.placements(run.id)
    births, evaluations = archive.runs.births(run.id, texts=False), archive.runs.evaluations(run.id)
    throughput = throughput_of(run, births, evaluations.values())
    line = [one.kernel or "" for one in main_line(facts.summary.best_kernel or "", facts.entries)]
    elites = niche_elites(facts.entries, placements)
    curve = curve_of(archive, run)
    others = [one for name, one in facts.first.items() if name != facts.reference]
    figures: dict[str, Callable[[], Figure]] = {
        "best so far": partial(best_so_far, [curve], device=device_words(run.device)),
        "lineage": partial(lineage_tree, lineage_layout(facts.entries, placements), line, problem, curve.published),
        "speedups": partial(speedup_distribution, facts.first.values(), problem),
    }
    if elites:
        figures["niches"] = partial(niche_map, elites, LEVELS, problem)
    if facts.card is not None and facts.card.task_roofline_ms:
        figures["roofline"] = partial(roofline, others, facts.card, problem, facts.roofline_share)
    if throughput.phases:
        figures["phases"] = partial(phase_times, throughput, problem)
    return figures
