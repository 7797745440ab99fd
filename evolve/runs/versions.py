"""Which versions a measurement or a run was made with."""

from importlib.metadata import PackageNotFoundError, version

from kbevolve import __version__

#: Packages whose versions can change a kernel's speed or the search's choices.
RECORDED_PACKAGES = ("torch", "triton", "numpy", "openevolve")


def recorded_versions() -> dict[str, str]:
    """Package to version, of kbevolve and of those that are installed."""
    found = {"kbevolve": __version__}
    for package in RECORDED_PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
