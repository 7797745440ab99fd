"""Trackers of experiments that follow a run: Weights & Biases, MLflow, TensorBoard.

Each is a sink of the event stream and gets numbers once a generation. Its package is imported when a run begins to be
tracked, and a tracker that fails is left out: a run never depends on a service.
"""

import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kbevolve.configs.errors import UsageError
from kbevolve.evolve.runs.event_stream import Sink

#: A line of the event stream.
Line = Mapping[str, Any]
#: Name of the project, or experiment, of all runs.
PROJECT = "kbevolve"
#: Tracker -> the module that it needs.
MODULES = {"wandb": "wandb", "mlflow": "mlflow", "tensorboard": "torch.utils.tensorboard"}


def trackers_of(names: Sequence[str], say: Callable[[str], None]) -> list[Sink]:
    """The sinks of these trackers; `say` reports one that fails.

    Raises:
        UsageError: the package of one is not installed.
    """
    return [_guarded(name, _TRACKERS[name](_module(name)), say) for name in names]


def metrics_of(line: Line) -> dict[str, float]:
    """The numbers of a `generation`, by name."""
    names = ("speedup", "evaluations", "device_seconds", "prompt_tokens", "completion_tokens", "dollars")
    found = {name: line[name] for name in names}
    found["correct"] = line["verdicts"].get("correct", 0)
    found |= {f"island_{number}": speedup for number, speedup in enumerate(line["islands"])}
    return {name: float(value) for name, value in found.items() if value is not None}


def _wandb(wandb: Any) -> Sink:
    runs: list[Any] = []

    def sink(line: Line) -> None:
        if line["event"] == "started":
            config = {"problem": line["problem"], "device": line["device"], **line["settings"]}
            runs.append(wandb.init(project=PROJECT, id=line["run"], name=line["run"], resume="allow", config=config))
        elif line["event"] == "generation":
            runs[-1].log(metrics_of(line), step=line["generation"])
        elif line["event"] == "stopped":
            runs[-1].summary.update({"kernel": line["kernel"], "speedup": line["speedup"], "reason": line["reason"]})
            runs[-1].finish()

    return sink


def _mlflow(mlflow: Any) -> Sink:
    def sink(line: Line) -> None:
        if line["event"] == "started":
            mlflow.set_experiment(PROJECT)
            mlflow.start_run(run_name=line["run"], tags={"problem": line["problem"], "device": line["device"]})
            mlflow.log_dict(line["settings"], "settings.json")
        elif line["event"] == "generation":
            mlflow.log_metrics(metrics_of(line), step=line["generation"])
        elif line["event"] == "stopped":
            mlflow.set_tags({"kernel": line["kernel"], "reason": line["reason"]})
            mlflow.end_run()

    return sink


def _tensorboard(tensorboard: Any) -> Sink:
    writers: list[Any] = []

    def sink(line: Line) -> None:
        if line["event"] == "started":
            writers.append(tensorboard.SummaryWriter(log_dir=f"runs/{line['run']}"))
            writers[-1].add_text("settings", f"```\n{json.dumps(line['settings'], indent=2)}\n```")
        elif line["event"] == "generation":
            for name, value in metrics_of(line).items():
                writers[-1].add_scalar(name, value, line["generation"])
        elif line["event"] == "stopped":
            writers[-1].add_text("best", f"{line['kernel']}: {line['speedup']} over eager")
            writers[-1].close()

    return sink


_TRACKERS: Mapping[str, Callable[[Any], Sink]] = {"wandb": _wandb, "mlflow": _mlflow, "tensorboard": _tensorboard}


def _module(name: str) -> Any:
    try:
        return importlib.import_module(MODULES[name])
    except ModuleNotFoundError as error:
        raise UsageError(
            f"tracker {name}: {error}; install it: pip install 'kbevolve[{name}]', or leave out --track {name}"
        ) from None


def _guarded(name: str, sink: Sink, say: Callable[[str], None]) -> Sink:
    works = True

    def guarded(line: Line) -> None:
        nonlocal works
        if works:
            try:
                sink(line)
            except Exception as error:  # of any service
                works = False
                say(f"tracker {name} failed and is left out from now on: {type(error).__name__}: {error}")

    return guarded
