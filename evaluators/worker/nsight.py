"""The program that Nsight Compute profiles: one kernel, called once inside the profiled range.

``python -P -m kbevolve.evaluators.worker.nsight FILE``; the file holds ``{"problem": source, "kernel": source,
"precision": …}``. Nothing is judged here, so inputs and weights are the problem's own, from a fixed seed.
"""

import json
import sys
from pathlib import Path
from types import ModuleType

import torch

from kbevolve.evaluators.worker.candidate import build_model, import_candidate
from kbevolve.evaluators.worker.precision import DTYPES, cast, set_flags

#: Calls before the profiled one: they compile, tune and warm up.
_WARM_UP = 3
_SEED = 0


def main() -> None:
    """Build the model, warm it up, and call it once between cudaProfilerStart and cudaProfilerStop."""
    request = json.loads(Path(sys.argv[1]).read_text())
    precision, device = request["precision"], torch.device("cuda")
    problem = ModuleType("problem")
    exec(compile(request["problem"], "problem.py", "exec"), vars(problem))
    torch.manual_seed(_SEED)
    with torch.device(device):
        arguments = problem.get_init_inputs()
        reference = problem.Model(*arguments).to(device=device, dtype=DTYPES[precision])
        inputs = [
            cast(value.to(device), precision) if isinstance(value, torch.Tensor) else value
            for value in problem.get_inputs()
        ]
    weights = dict(reference.state_dict())
    kernel = import_candidate(request["kernel"])
    model, _ = build_model(kernel, arguments, seed=_SEED, precision=precision, device=device, weights=weights)
    del reference, weights
    set_flags(precision)
    with torch.no_grad():
        for _ in range(_WARM_UP):
            model(*inputs)
        torch.cuda.synchronize()
        with torch.cuda.profiler.profile():
            model(*inputs)
            torch.cuda.synchronize()


if __name__ == "__main__":
    main()
