"""`kbevolve doctor`: show what works on this machine."""

import importlib.util
import os
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path

import click
from rich.text import Text

from kbevolve.archive.records import Backend
from kbevolve.configs.errors import EvaluatorError
from kbevolve.configs.layers import layers
from kbevolve.configs.settings import LLMSettings, Settings, WorkSettings
from kbevolve.evaluators.diagnostics import Diagnostic, diagnose, working_backends
from kbevolve.evolve.cli.options import FILE, json_option
from kbevolve.evolve.cli.render.console import Console
from kbevolve.evolve.cli.render.json import print_json
from kbevolve.evolve.cli.render.tables import print_fields, say
from kbevolve.evolve.proposers.codegen.languages import TITLES, obstacle, possible_backends

#: Languages of which neither torch nor a compiler says whether they are here.
_MORE = (Backend.TILELANG, Backend.CUTE, Backend.THUNDERKITTENS, Backend.HIP)


@click.command(epilog="Example: kbevolve doctor")
@click.option("--config", type=FILE, help="A YAML file of settings.")
@json_option
def doctor(config: Path | None, as_json: bool) -> None:
    """Show what works here, what is missing, and how to install it. The exit code is always 0."""
    settings = Settings.merged(layer.tree for layer in layers(preset=None, config=config, overrides={}))
    checks = diagnose()
    findings = [*checks, *more_languages(), *more_devices(), ray_cluster(settings.work), language_model(settings.llm)]
    backends = working_backends(findings) | _more_backends(findings)
    if as_json:
        print_json({"findings": findings, "backends": backends})
        return
    console = Console(highlight=False)
    print_fields(console, {finding.name: _detail(finding) for finding in findings})
    working = ", ".join(name for name, works in backends.items() if works)
    missing = ", ".join(name for name, works in backends.items() if not works)
    say(console, f"\nKernels that work here: {working or 'none'}" + (f"; not: {missing}" if missing else ""))


def more_languages() -> Iterator[Diagnostic]:
    """Languages of kernels that need more than torch brings, where a GPU is that runs them."""
    device = _first_gpu()
    for backend in _MORE if device else ():
        if backend in possible_backends("cuda", device):
            lacking = obstacle(backend, device)
            yield Diagnostic(name=backend.value, found=not lacking, detail=lacking or TITLES[backend])


def _more_backends(findings: Sequence[Diagnostic]) -> dict[str, bool]:
    found = {finding.name: finding.found for finding in findings}
    return {backend.value: found.get(backend.value, False) for backend in _MORE}


def _first_gpu() -> str:
    """The description of the first GPU; "" where there is none."""
    try:
        from kbevolve.evaluators.device.devices import find_device

        return find_device("cuda").description
    except Exception:  # of a driver that does not fit, too; the row of the GPU shows it
        return ""


def more_devices() -> Iterator[Diagnostic]:
    """The CUDA devices of a machine that has several, as `--devices` takes them."""
    if importlib.util.find_spec("torch") is None:
        return
    import torch

    from kbevolve.evaluators.device.devices import find_device

    count = torch.cuda.device_count()
    for index in range(count if count > 1 else 0):
        name = f"cuda:{index}"
        try:
            yield Diagnostic(name=name, found=True, detail=find_device(name).description)
        except Exception as error:  # one of several may fail
            yield Diagnostic(name=name, found=False, detail=str(error).splitlines()[0][:200], remedy="leave it out")


def ray_cluster(work: WorkSettings) -> Diagnostic:
    """Whether `--workers ray` would find a cluster, and what it has."""
    if importlib.util.find_spec("ray") is None:
        detail, remedy = "not installed; it is for devices of several hosts", "pip install 'kbevolve[ray]'"
        return Diagnostic(name="Ray", found=False, detail=detail, remedy=remedy)
    from kbevolve.evaluators.fleet.cluster import Cluster

    installed, address = version("ray"), work.ray_address or "auto"
    try:
        cluster = Cluster(address)
    except EvaluatorError as error:
        if work.ray_address is not None:
            return Diagnostic(name="Ray", found=False, detail=f"{installed}; {error}")
        detail = f"{installed}; no cluster is running here, --workers ray starts one on this machine"
        return Diagnostic(name="Ray", found=True, detail=detail)
    try:
        return Diagnostic(name="Ray", found=True, detail=f"{installed}; a cluster of {cluster}")
    finally:
        cluster.close()


def language_model(settings: LLMSettings) -> Diagnostic:
    """Whether models are configured, and whether their key is set."""
    if settings.provider == "openai" and not any(one.model for one in settings.each()):
        detail = f"no model is configured, {_key(settings)}; searches change tunables only"
        return Diagnostic(name="LLM", found=False, detail=detail, remedy="kbevolve run --model NAME [--api-base URL]")
    return Diagnostic(name="LLM", found=True, detail="; ".join(map(_model, settings.each())))


def _model(settings: LLMSettings) -> str:
    """One model, its endpoint, and whether its key is set."""
    if settings.provider != "openai":
        return f"{settings.model or 'its own model'} by {settings.provider}"
    # Masked: an address may contain a password.
    where = settings.model_dump()["api_base"] or "the provider's own endpoint"
    return f"{settings.model} by {settings.provider} at {where}, {_key(settings)}"


def _key(settings: LLMSettings) -> str:
    variable = settings.api_key_variable
    return f"a key in {variable}" if os.environ.get(variable) else f"no key in {variable}"


def _detail(finding: Diagnostic) -> Text:
    detail = Text.assemble(("✓", "green") if finding.found else ("–", "yellow"), f" {finding.detail or 'not found'}")
    if not finding.found and finding.remedy:
        detail.append(f"; {finding.remedy}", style="dim")
    return detail
