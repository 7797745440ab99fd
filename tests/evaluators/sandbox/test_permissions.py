"""Permissions hold what a kernel needs to be built and run, and nothing private."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kbevolve.evaluators.device.devices import Device
from kbevolve.evaluators.sandbox import bubblewrap
from kbevolve.evaluators.sandbox.gpu import Gpu
from kbevolve.evaluators.sandbox.permissions import OURS, Permissions, permissions_for, search_path

PROGRAM = OURS / "evaluators" / "worker"
CPU = Device(type="cpu", index=0, fingerprint="cpu", description="a CPU")
GPU = Gpu(name="GPU-1", node=Path("/dev/nvidia1"))


def test_hidden_parts_of_a_root_are_left_out(tmp_path: Path) -> None:
    for name in ("packages/torch", "packages/ours/judge", "packages/ours/worker"):
        (tmp_path / name).mkdir(parents=True)
    packages = tmp_path / "packages"
    found = Permissions(
        roots=(packages, packages / "ours" / "worker"), hidden=(packages / "ours",), devices=(), writable=()
    ).for_landlock()
    assert found["listable"] == ["/proc", "/sys", str(packages)]
    readable = {path for path in found["readable"] if not path.startswith(("/proc/", "/sys/"))}
    assert readable == {str(packages / "torch"), str(packages / "ours" / "worker")}


def test_home_temporary_files_and_our_sources_are_not_readable(tmp_path: Path) -> None:
    environment = {"PYTHONPATH": f"{Path.home()}:{tmp_path}:{OURS}", "CUDA_HOME": str(Path.home()), "CPATH": "/"}
    permissions = permissions_for(CPU, tmp_path / "own", PROGRAM, environment)
    readable = [Path(path) for path in permissions.for_landlock()["readable"]]
    assert tmp_path in readable  # a folder of the user's search path
    for closed in (Path.home(), OURS, OURS / "evaluators" / "judging" / "judge.py", tmp_path.parent):
        assert not any(closed.is_relative_to(path) for path in readable), closed
    assert any(Path(sys.executable).resolve().is_relative_to(path) for path in readable)
    assert permissions.writable == (tmp_path / "own",)


def test_a_folder_of_models_is_readable_where_the_user_names_it(tmp_path: Path) -> None:
    models = tmp_path / "hub"
    models.mkdir()
    for environment, readable in (({}, False), ({"HF_HUB_CACHE": str(models)}, True)):
        paths = permissions_for(CPU, tmp_path / "own", PROGRAM, environment).for_landlock()["readable"]
        assert (str(models) in paths) is readable


@pytest.mark.parametrize(
    "closed",
    ["/etc", "/etc/shadow", "/etc/ssh/sshd_config", "/proc", "/proc/1/cmdline", "/proc/kcore", "/sys/kernel/debug"],
)
def test_of_the_systems_configuration_and_processes_only_named_files_are_readable(closed: str, tmp_path: Path) -> None:
    readable = permissions_for(CPU, tmp_path, PROGRAM, {}).for_landlock()["readable"]
    assert {"/etc/passwd", "/proc/self", "/proc/cpuinfo", "/sys/devices"} <= set(readable)
    assert not any(Path(closed).is_relative_to(path) for path in readable)


def test_a_cpu_gets_no_disk_and_no_gpu(tmp_path: Path) -> None:
    for device in (CPU, None):
        names = {path.name for path in permissions_for(device, tmp_path, PROGRAM, {}).devices}
        assert names == {"null", "zero", "full", "random", "urandom"}


def test_a_gpu_gets_its_own_special_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kbevolve.evaluators.sandbox.permissions.find_gpu", lambda device: GPU)
    monkeypatch.setattr("kbevolve.evaluators.sandbox.permissions.special_files", lambda gpu: [gpu.node])
    device = replace(CPU, type="cuda")
    assert GPU.node in permissions_for(device, tmp_path, PROGRAM, {}).devices


def test_our_checkout_is_not_on_the_search_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert search_path({"PYTHONPATH": os.pathsep.join([str(OURS), "lib", ""])}) == [str(tmp_path / "lib")]


def test_bubblewrap_mounts_deeper_paths_later_and_keeps_namespaces_for_cuda(tmp_path: Path) -> None:
    permissions = Permissions(
        roots=(Path("/opt/python/lib/ours/worker"), Path("/opt")),
        hidden=(Path("/opt/python/lib/ours"), Path("/home/me")),
        devices=(Path("/dev/nvidia0"),),
        writable=(tmp_path,),
    )
    words = bubblewrap.command(permissions, "cpu", tmp_path)
    mounts = [words.index(path) for path in ("/opt", "/opt/python/lib/ours", "/opt/python/lib/ours/worker")]
    assert mounts == sorted(mounts)
    assert "/home/me" not in words
    closed = {words[place + 1] for place, word in enumerate(words) if word == "--remount-ro"}
    assert closed == {"/", "/dev", "/opt/python/lib/ours"}
    assert {"--unshare-net", "--unshare-pid", "--die-with-parent"} <= set(words)
    shared = bubblewrap.command(permissions, "cuda", tmp_path)
    assert not {"--unshare-net", "--unshare-pid", "--unshare-ipc"} & set(shared)
    assert shared[-1] == "--"
