"""Write docs/settings.md from the settings' definitions: ``python -m docs.write_settings`` (a test compares it)."""

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from kbevolve.configs.sections import Section
from kbevolve.configs.setting_facts import setting_facts
from kbevolve.configs.settings import Settings
from kbevolve.evolve.cli.commands.settings import value_words

PAGE = Path(__file__).with_name("settings.md")
HEAD = """\
# Settings

```
kbevolve settings                                # the values that a new run would have here, and their sources
kbevolve settings search evaluation.precision    # of a section, of a setting; --json for scripts
kbevolve run --problem L1/softmax --set search.islands=2
```

Values come from these places; later ones win:

1. the defaults below,
2. the preset of `--preset`, or `cpu` where kernels are judged on a CPU,
3. `kbevolve.toml` in the working directory, or in the nearest directory above it that has one,
4. a YAML file: `--config FILE`,
5. the environment: `KBEVOLVE_SEARCH_ISLANDS=2` sets `search.islands`; values are YAML,
6. the command line: `--set NAME=VALUE` and the short options, such as `--islands 2`; the short ones win.

A `kbevolve.toml` has a table for each section:

```toml
proposer = "llm"

[search]
generations = 100

[llm]
model = "qwen3-coder"
api_base = "http://127.0.0.1:8000/v1"
```

A run keeps the settings that it was started with: `kbevolve resume` takes changes from the command line only. API keys
are no settings; `llm.api_key_variable` names the environment variable that holds one. `null` is no value, which the
meanings call None.

This page is written by `python -m docs.write_settings`.
"""


def page() -> str:
    """The whole page."""
    return HEAD + "".join(_tables())


def _tables() -> Iterator[str]:
    for section, facts in groupby(setting_facts(), key=lambda one: one.name.rpartition(".")[0]):
        kind = Settings.model_fields[section].annotation if section else None
        words = (kind.__doc__ or "").strip() if isinstance(kind, type) and issubclass(kind, Section) else ""
        yield f"\n## {f'`{section}`' if section else 'General'}\n\n"
        yield " ".join(words.split()) + "\n\n" if words else ""
        yield "| setting | type | default | meaning |\n|---|---|---|---|\n"
        for one in facts:
            yield f"| `{one.name}` | {one.type} | `{value_words(one.default)}` | {one.meaning} |\n"


if __name__ == "__main__":
    PAGE.write_text(page())
