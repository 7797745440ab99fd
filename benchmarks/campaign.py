"""What a model's children reached, from the archives of its runs: a row a child, and a row a problem.

    python -m benchmarks.campaign ARCHIVE...

Each archive holds one run that was asked and answered (docs/agents.md), or that a model wrote. "idea" is the place in
the author's list, the most promising first, of the idea that was carried out; "claimed" is the gain that the author
expected of it. Tables are printed as Markdown.
"""

import argparse
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_CHILDREN = """
select births.generation, births.island, births.slot, births.operator, births.parents, births.kernel,
    ideas.title, ideas.expected_gain, judged.verdict, judged.speedup, judged.error, judged.reference_error,
    judged.time_ms, judged.reference_ms, judged.precision_class, length(asked.text), length(replied.text)
from births join runs on runs.id = births.run
left join ideas on ideas.id = births.idea
left join texts as asked on asked.id = births.prompt
left join texts as replied on replied.id = births.reply
left join evaluations as judged on judged.number = (
    select min(number) from evaluations where kernel = births.kernel and problem = runs.problem)
order by births.generation, births.island, births.slot
"""
_ANSWERS = """
select generation, island, answers.text from answers join questions using (run, generation, island, slot, number)
where questions.stage = 'IDEA' order by number
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """A kernel of a run, judged or not."""

    generation: int
    island: int
    slot: int
    operator: str
    parents: tuple[str, ...]
    kernel: str | None
    idea: str
    claimed: float | None
    verdict: str
    speedup: float | None
    error: float | None
    reference_error: float | None
    time_ms: float | None
    reference_ms: float | None
    precision_class: str | None
    #: Characters of what was asked and answered, in all of the child's requests.
    asked: int
    answered: int

    @property
    def name(self) -> str:
        return f"g{self.generation}/i{self.island}" + (f"/s{self.slot}" if self.slot else "")


def children(connection: sqlite3.Connection) -> list[Child]:
    """All births of the archive, starting kernels first."""
    return [
        Child(
            generation=row[0], island=row[1], slot=row[2], operator=row[3].lower(), parents=tuple(json.loads(row[4])),
            kernel=row[5], idea=row[6] or "", claimed=row[7], verdict=(row[8] or "not judged").lower(), speedup=row[9],
            error=row[10], reference_error=row[11], time_ms=row[12], reference_ms=row[13],
            precision_class=row[14], asked=row[15] or 0, answered=row[16] or 0,
        )
        for row in connection.execute(_CHILDREN)
    ]  # fmt: skip


def proposed(connection: sqlite3.Connection) -> dict[tuple[int, int], list[str]]:
    """Generation and island -> the titles of the ideas, in the author's order."""
    found: dict[tuple[int, int], list[str]] = {}
    for generation, island, text in connection.execute(_ANSWERS):
        body = text[text.find("[") : text.rfind("]") + 1]
        try:
            ideas = json.loads(body)
        except ValueError:
            continue
        found[generation, island] = [str(idea.get("title", "")) for idea in ideas]
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A child, the place of its idea among those proposed, and its gain over its first parent."""

    problem: str
    child: Child
    place: str
    gain: float | None


def rows(path: Path) -> Iterator[Row]:
    """Of one archive, in the order of births."""
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    ((problem,),) = connection.execute("select distinct problem_name from runs")
    everyone, lists = children(connection), proposed(connection)
    speeds = {one.kernel: one.speedup for one in everyone if one.speedup}
    for child in everyone:
        titles = lists.get((child.generation, child.island), [])
        places = [at for at, title in enumerate(titles, 1) if title.startswith(child.idea.removesuffix("…"))]
        place = f"{places[0]} of {len(titles)}" if child.idea and places else ""
        parent = speeds.get(child.parents[0]) if child.parents else None
        gain = child.speedup / parent if child.speedup and parent else None
        yield Row(problem=problem, child=child, place=place, gain=gain)


def number(value: float | None, form: str = ".3g") -> str:
    """A cell."""
    return "" if value is None else format(value, form)


def table(titles: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """In Markdown."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (titles, ["---"] * len(titles), *lines))


def rooflines(path: Path) -> dict[str, float]:
    """Milliseconds at the roofline of an archive's problem, by precision class."""
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    found = connection.execute("select card from cards order by number desc").fetchone()
    return dict(json.loads(found[0])["roofline_ms"]) if found else {}


def of_problem(found: Sequence[Row], roofline_ms: Mapping[str, float]) -> list[str]:
    """Its best start and its champion, if nothing of it was judged again."""
    judged = [one.child for one in found if one.child.generation and one.child.verdict != "not judged"]
    starts = [one.child for one in found if not one.child.generation and one.child.speedup]
    right = [child for child in judged if child.verdict == "correct"]
    best = max([*starts, *right], key=lambda one: one.speedup or 0.0)
    limit = roofline_ms.get(best.precision_class or "")
    born = [one.child for one in found if one.child.generation]
    return [
        found[0].problem,
        number(starts[0].reference_ms),
        number(max(one.speedup or 0.0 for one in starts)),
        f"{len(right)} of {len(judged)}",
        best.name,
        f"**{number(best.speedup)}**",
        number(best.time_ms),
        number(best.error, ".1e"),
        number(best.reference_error, ".1e"),
        best.precision_class or "",
        number(limit / best.time_ms if limit and best.time_ms else None, ".0%"),
        f"{sum(one.asked for one in born) / 1e3:.0f}, {sum(one.answered for one in born) / 1e3:.0f}",
    ]


def of_child(row: Row) -> list[str]:
    child = row.child
    return [
        row.problem,
        child.name,
        child.operator,
        row.place,
        number(child.claimed),
        number(row.gain),
        child.verdict,
        number(child.speedup),
        number(child.error, ".1e"),
        child.idea.replace("|", "/"),
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", type=Path, nargs="+")
    archives = parser.parse_args(arguments).archive
    found = [list(rows(path)) for path in archives]
    titles = "problem,eager in ms,best start,correct,champion,times eager,ms,error,reference's own,class,"
    titles += "of the roofline,K asked and answered"
    print(table(titles.split(","), map(of_problem, found, map(rooflines, archives))), end="\n\n")
    titles = "problem,child,operator,idea,claimed,gain,verdict,times eager,error,what"
    print(table(titles.split(","), (of_child(row) for one in found for row in one if row.child.generation)))


if __name__ == "__main__":
    main()
