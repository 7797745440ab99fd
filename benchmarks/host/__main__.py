"""What hosts of several GPUs would judge in an hour, beside one GPU.

    python -m benchmarks.host [--children 30] [--seeds 20] [--set start_lock=0.03] [--hosts 1x1,1x2,1x4,1x8,8x8]

Simulated (`benchmarks.host.model`), so no GPU is needed; `--set` changes a service time, in seconds, or their spread. A
row is so many hosts of so many GPUs: children an hour, its standard deviation over the seeds, times of one GPU, the
share of the time for which a driver's lock is held, and the mean seconds for which a child waits for a worker. The last
line is one JSON object.
"""

import argparse
import json
import statistics
from dataclasses import replace

from benchmarks.host.model import Service, simulated


def main() -> None:
    """A table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--children", type=int, default=30, help="for each GPU; a fleet ends with its last child")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=NUMBER", help="a field of `Service`")
    parser.add_argument("--hosts", default="1x1,1x2,1x4,1x8,16x4,8x8", help="HOSTSxGPUS, with commas between them")
    options = parser.parse_args()
    service = replace(Service(), **{name: float(value) for name, value in (one.split("=") for one in options.set)})
    sizes = [tuple(map(int, size.split("x"))) for size in options.hosts.split(",")]
    print("| hosts | GPUs of each | an hour | ± | times one GPU | of them | lock held | wait for a worker, s |")
    print("|---|---|---|---|---|---|---|---|")
    rows: dict[str, dict[str, float]] = {}
    one = _mean(service, 1, 1, options)["an_hour"]
    for hosts, gpus in sizes:
        found = _mean(service, hosts, gpus, options)
        times = found["an_hour"] / one
        rows[f"{hosts}x{gpus}"] = found | {"times": times}
        share = times / (hosts * gpus)
        print(
            f"| {hosts} | {gpus} | {found['an_hour']:.0f} | {found['deviation']:.0f} | {times:.2f} | {share:.2f} | "
            f"{found['lock_busy']:.0%} | {found['wait']:.2f} |"
        )
    print(json.dumps(rows))


def _mean(service: Service, hosts: int, gpus: int, options: argparse.Namespace) -> dict[str, float]:
    found = [
        simulated(service, hosts=hosts, gpus=gpus, children=options.children, seed=seed)
        for seed in range(options.seeds)
    ]
    return {
        "an_hour": statistics.fmean(one.an_hour for one in found),
        "deviation": statistics.stdev(one.an_hour for one in found) if len(found) > 1 else 0.0,
        "lock_busy": statistics.fmean(one.lock_busy for one in found),
        "wait": statistics.fmean(one.wait for one in found),
        "build": statistics.fmean(one.build for one in found),
    }


if __name__ == "__main__":
    main()
