"""Children an hour on one device, beside KernelBench's recipe on the same children.

    python -m benchmarks.throughput mix                            # the 60 children, as a table
    python -m benchmarks.throughput ours --out DIR                 # all of them through our judge
    python -m benchmarks.throughput recipe --out DIR --sample      # 12 of them by the recipe, one of each stratum
    python -m benchmarks.throughput recipe --out DIR --children 0:10
    python -m benchmarks.throughput report --out DIR               # what came of it
    python -m benchmarks.throughput scaling --judges 2 --workers ray   # how it grows with GPUs

The recipe goes on where it was stopped: a child that is in DIR already is not evaluated again, and after --seconds no
other is begun. `--small` takes twelve children that need no GPU.
"""

import argparse
import json
from pathlib import Path

from benchmarks.throughput import ours, report, scaling, theirs
from benchmarks.throughput.child import Child
from benchmarks.throughput.mix import children, sample, small_children, table
from benchmarks.throughput.problems import problems
from kbevolve.configs.settings import EvaluationSettings, Settings
from kbevolve.evaluators.device.devices import find_device


def chosen(mix: tuple[Child, ...], options: argparse.Namespace) -> tuple[Child, ...]:
    """The part of the mix that is asked for: a slice ``FIRST:END``, names, or one of each stratum."""
    if options.sample:
        return sample(mix)
    if options.children is None:
        return mix
    first, colon, end = options.children.partition(":")
    if colon:
        return mix[int(first or 0) : int(end or len(mix))]
    wanted = options.children.split(",")
    unknown = sorted(set(wanted) - {child.name for child in mix})
    if unknown:
        raise SystemExit(f"no child {', '.join(unknown)}; `python -m benchmarks.throughput mix` lists them")
    return tuple(child for child in mix if child.name in wanted)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=("mix", "ours", "recipe", "report", "scaling"))
    parser.add_argument("--out", type=Path, default=Path("throughput"), help="folder of the results")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--small", action="store_true", help="twelve small children that need no GPU")
    parser.add_argument("--children", help="FIRST:END, or names with commas between them")
    parser.add_argument("--sample", action="store_true", help="one child of each kind and fate")
    parser.add_argument("--seconds", type=float, default=540.0, help="begin no child that would end later (recipe)")
    parser.add_argument("--width", type=int, default=0, help="kernels at once; 0 for what fits this machine")
    parser.add_argument(
        "--connections",
        type=int,
        default=EvaluationSettings().connections,
        help="the setting evaluation.connections (ours, scaling)",
    )
    parser.add_argument("--archive", type=Path, help="keep our evaluations in this archive too")
    parser.add_argument("--judges", type=int, default=2, help="one for each device (scaling)")
    parser.add_argument("--times", type=int, help="passes over the mix (ours: 1), for each judge (scaling: 4)")
    parser.add_argument("--workers", choices=("local", "ray"), default="local", help="where the judges are (scaling)")
    parser.add_argument("--beside", type=int, default=0, help="compilers on cores that no judge may use (scaling)")
    parser.add_argument("--built", action="store_true", help="compilers have done their work before (scaling)")
    parser.add_argument("--problem", help="whose children alone; default: all four problems' (scaling)")
    parser.add_argument("--json", action="store_true", help="end with one JSON object and nothing else")
    options = parser.parse_args()
    mix = small_children() if options.small else children()
    part = chosen(mix, options)
    match options.stage:
        case "mix":
            print(table(part), end="")
        case "ours":
            device = find_device(options.device)
            preset = "cpu" if device.type == "cpu" else None
            settings = Settings.load(
                preset=preset, overrides={"evaluation.connections": options.connections}
            ).evaluation
            out = options.out / report.OURS
            known = problems(small=options.small)
            asked = {"width": options.width, "times": options.times or 1, "archive": options.archive}
            ours.evaluate_all(part, known, device, settings, out, **asked)
        case "recipe":
            device = find_device(options.device)
            out = options.out / report.THEIRS
            left = theirs.evaluate_all(part, problems(small=options.small), device, out, seconds=options.seconds)
            print(f"{left} left" if left else "all done", flush=True)
        case "scaling":
            found = scaling.measure(
                [child for child in part if options.problem in (None, child.problem)],
                problems(small=options.small),
                device=find_device(options.device).type,
                judges=options.judges,
                times=options.times or 4,
                workers=options.workers,
                width=options.width,
                connections=options.connections,
                beside=options.beside,
                built=options.built,
            )
            print(json.dumps(found))
        case "report":
            found = report.figures(mix, options.out)
            if not options.json:
                print(report.markdown(found))
            print(json.dumps(found))


if __name__ == "__main__":
    main()
