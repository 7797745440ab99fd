"""`kbevolve doctor`: say what was found here."""

import os
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from kbevolve.configs.settings import LLMSettings, Settings
from kbevolve.evaluators.probe import Finding, probe, working_backends
from kbevolve.evolve.plain_values import print_json


@click.command(epilog="Example: kbevolve doctor")
@click.option("--config", type=click.Path(dir_okay=False, path_type=Path), help="A YAML file of settings.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for scripts.")
def doctor(config: Path | None, as_json: bool) -> None:
    """Say what was found here, what is missing, and what to do about it.

    The exit code is 0: something missing is an answer, too.
    """
    settings = Settings.load(file=config)
    findings = [*probe(), language_model(settings.llm)]
    backends = working_backends(findings)
    if as_json:
        print_json({"findings": findings, "backends": backends})
        return
    console = Console(highlight=False)
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        console.print(_line(finding, width), soft_wrap=True)
    working = ", ".join(name for name, works in backends.items() if works)
    missing = ", ".join(name for name, works in backends.items() if not works)
    console.print(
        f"\nKernels that work here: {working or 'none'}" + (f"; not: {missing}" if missing else ""), soft_wrap=True
    )


def language_model(settings: LLMSettings) -> Finding:
    """Whether a model is configured; of a key, only whether there is one."""
    variable = settings.api_key_variable
    key = f"a key in {variable}" if os.environ.get(variable) else f"no key in {variable}"
    if settings.model is None:
        return Finding(
            name="LLM",
            found=False,
            detail=f"no model is configured, {key}; searches change tunables only",
            remedy="kbevolve run --model NAME [--api-base URL]",
        )
    where = settings.api_base or "the provider's own endpoint"
    return Finding(name="LLM", found=True, detail=f"{settings.model} by {settings.provider} at {where}, {key}")


def _line(finding: Finding, width: int) -> Text:
    mark, style = ("✓", "green") if finding.found else ("–", "yellow")
    line = Text.assemble((mark, style), f" {finding.name:<{width}}  {finding.detail or 'not found'}")
    if not finding.found and finding.remedy:
        line.append(f"; {finding.remedy}", style="dim")
    return line
