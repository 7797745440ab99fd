"""`openevolve`: a task folder in which OpenEvolve improves the kernel, with kbevolve's judge as its evaluator."""

import yaml

from kbevolve.evolve.exports.measured import MeasuredKernel

#: Between these comments OpenEvolve changes the program.
_START, _END = "# EVOLVE-BLOCK-START", "# EVOLVE-BLOCK-END"
_SYSTEM = """\
You write fast GPU kernels. The program is a file with `class ModelNew(nn.Module)`. It must compute what the
`Model` below computes, with the same constructor arguments, parameters and outputs, in {precision} on this device:
{device}. The score is the lower end of the 95 % interval of its speedup over PyTorch eager; a kernel that is not
correct gets 0.

```python
{reference}
```
"""


def openevolve(found: MeasuredKernel) -> dict[str, str]:
    """The files of the folder: first program, evaluator, configuration and problem."""
    precision, device = found.evaluation.precision, found.device
    system = _SYSTEM.format(precision=precision, device=device.description, reference=found.reference.strip())
    config = {
        "max_iterations": 100,
        "checkpoint_interval": 10,
        # The model's answer may hold a whole file; OpenEvolve's own limit is shorter than many kernels.
        "max_code_length": 200_000,
        "random_seed": found.run.seed,
        "llm": {
            "api_base": "https://api.openai.com/v1",
            "models": [{"name": "gpt-5", "weight": 1.0}],
            "timeout": 600,
        },
        "prompt": {"system_message": system},
        # One evaluation at a time: two kernels on one device would slow each other.
        "evaluator": {"timeout": 3600, "max_retries": 0, "cascade_evaluation": False, "parallel_evaluations": 1},
    }
    command = ["--device", device.torch_name, "--precision", precision]
    head, body = found.header, found.text[len(found.header) :].strip("\n")
    return {
        "initial_program.py": f"{head}\n{_START}\n{body}\n{_END}\n",
        "evaluator.py": found.fill("openevolve_evaluator.py.jinja", command=command),
        "config.yaml": yaml.safe_dump(config, sort_keys=False, allow_unicode=True),
        "problem.py": found.problem.source,
    }
