"""The versions of software that a run or a measurement depends on."""

from importlib.metadata import PackageNotFoundError, version

from kbevolve import __version__

#: Packages that can change a kernel's speed or the choices of the search.
RECORDED_PACKAGES = ("torch", "triton", "numpy", "openevolve")


def recorded_versions() -> dict[str, str]:
    """Package -> version, of kbevolve and of the packages above that are installed."""
    found = {"kbevolve": __version__}
    for package in RECORDED_PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
