"""Landscapes for comparing searches, measured by our own judge.

    python -m benchmarks.landscapes ls                                  # the spaces
    python -m benchmarks.landscapes measure matmul --out matmul.jsonl   # one line of JSON a configuration
    python -m benchmarks.landscapes pack matmul.jsonl --out matmul.json # the documented format (docs/landscapes.md)
    python -m benchmarks.landscapes show matmul.json                    # what it holds
    python -m benchmarks.landscapes convert A100.json.gz --out conv.json # a cache file of Kernel Tuner
    python -m benchmarks.landscapes fail matmul --where NUM_STAGES=3 --out fails.json # some configurations fail

Measuring goes on where it was stopped: a configuration that is in the file is not measured again, and after --seconds
none is begun. `--small` has a space that needs no GPU.
"""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path

from benchmarks.landscapes.failing import failing
from benchmarks.landscapes.measure import measure_all
from benchmarks.landscapes.outside import converted
from benchmarks.landscapes.pack import packed, summary
from benchmarks.landscapes.spaces import Space, spaces
from benchmarks.throughput import lines
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evolve.simulation.measured import parse_landscape, read_landscape
from kbevolve.evolve.simulation.tournament import find_landscape


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=("ls", "measure", "pack", "show", "convert", "fail"))
    parser.add_argument(
        "what", nargs="?", default="", help="a space (measure), its lines (pack), a landscape or a cache file"
    )
    parser.add_argument("--out", type=Path, help="file of the lines (measure) or of the landscape (pack)")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no configuration after these")
    parser.add_argument("--width", type=int, default=0, help="kernels at once; 0 for what fits this machine")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--small", action="store_true", help="a small space that needs no GPU")
    parser.add_argument("--about", default="", help="a sentence for the landscape: device, versions, date (pack)")
    parser.add_argument(
        "--where",
        action="append",
        default=[],
        metavar="A=1,B=2",
        help="configurations that fail (fail); may be repeated",
    )
    options = parser.parse_args()
    known = spaces(small=options.small)
    match options.stage:
        case "ls":
            for space in known.values():
                print(
                    f"{space.name:12} {space.size:4} configurations of {space.problem.name}: {', '.join(space.values)}"
                )
        case "measure":
            space = _known(known, options.what)
            device = find_device(options.device)
            out = options.out or Path(f"{space.name}.jsonl")
            left = measure_all(space, device, out, seconds=options.seconds, width=options.width)
            print(f"{left} left" if left else "all done", flush=True)
        case "pack":
            found = lines.read(Path(options.what))
            if not found:
                raise SystemExit(f"{options.what}: no line of measurements; measure first")
            space = _known(known, found[0]["space"])
            if found[0]["problem"] != space.problem.id:
                raise SystemExit(f"{options.what}: measured on another problem than {space.name}'s; is --small right?")
            text = packed(found, space, about=options.about or f"{space.problem.name} on {found[0]['device']}")
            out = options.out or Path(f"{space.name}.json")
            parse_landscape(text, origin=str(out))  # what is written can be read
            out.write_text(text, encoding="utf-8")
        case "convert":
            text = converted(Path(options.what))
            parse_landscape(text, origin=options.what)
            (options.out or Path(f"{Path(options.what).name.partition('.')[0]}.json")).write_text(
                text, encoding="utf-8"
            )
        case "fail":
            text = failing(find_landscape(options.what), options.where)
            name = parse_landscape(text, origin=options.what).name
            (options.out or Path(f"{name.replace(' ', '-')}.json")).write_text(text, encoding="utf-8")
        case "show":
            print(json.dumps(summary(read_landscape(Path(options.what))), indent=2, ensure_ascii=False))


def _known(known: Mapping[str, Space], name: str) -> Space:
    if name not in known:
        raise SystemExit(f"no space {name!r}; there are {', '.join(known)}")
    return known[name]


if __name__ == "__main__":
    main()
