"""What `benchmarks.engine` measures of ours, measured of openevolve's database, at 1,000 and at 10,000 programs.

python -m benchmarks.openevolve_database --programs 1000 10000
"""

import argparse
import json
import statistics
from random import Random

from openevolve.config import DatabaseConfig
from openevolve.database import Program, ProgramDatabase

from benchmarks.engine.measuring import CallTimer
from benchmarks.engine.workload import SEED, SKELETONS


def measure_openevolve(programs: int, samples: int = 20) -> dict[str, float]:
    """Means of adding a program and of sampling from an island, after so many programs, of which it keeps most."""
    database = ProgramDatabase(DatabaseConfig(population_size=10 * programs, random_seed=SEED, log_prompts=False))
    rng = Random(SEED)

    def add(number: int) -> None:
        code = SKELETONS[number % len(SKELETONS)].format(number=number) + "x = 1\n" * rng.randrange(200)
        database.add(
            Program(id=str(number), code=code, metrics={"combined_score": rng.random()}),
            target_island=number % database.config.num_islands,
        )

    for number in range(programs):
        add(number)
    adding, sampling = CallTimer(), CallTimer()
    timed_add = adding.timed(add)
    timed_sample = sampling.timed(database.sample_from_island)
    for number in range(samples):
        timed_add(programs + number)
        timed_sample(number % database.config.num_islands)
    return {
        "openevolve_programs": programs,
        "kept": len(database.programs),
        "sample_ms": round(statistics.mean(sampling.taken), 3),
        "insert_ms": round(statistics.mean(adding.taken), 3),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, nargs="+", default=[1_000, 10_000], help="programs in the database")
    for programs in parser.parse_args().programs:
        print(json.dumps(measure_openevolve(programs)), flush=True)
