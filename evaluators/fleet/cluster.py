"""A Ray cluster: connect to one or start one, find its devices, and make a fleet of judges there, one for each GPU.

Ray places the actors, carries requests and replies, and reports when an actor or its host is gone. The fleet decides
everything else: which judge gets the next kernel, and what a death costs. kbevolve must be installed on every host, in
the same version. Records travel, problem and settings among them, and no key.

Ray is imported here only, and late: it takes a second, and most runs need one device of one machine.
"""

import atexit
import contextlib
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from kbevolve.configs.errors import EvaluatorError
from kbevolve.configs.settings import EvaluationSettings, WorkSettings
from kbevolve.evaluators.device.devices import Device, find_device
from kbevolve.evaluators.fleet.actors import one_line, start_actor
from kbevolve.evaluators.fleet.fleet import Fleet
from kbevolve.evaluators.fleet.judge_host import JUDGE, JudgeReply, JudgeSpec
from kbevolve.evaluators.fleet.judge_process import without_secrets
from kbevolve.evaluators.fleet.slots import Slot
from kbevolve.evaluators.sandbox import directories

#: Of a cluster that is started here: for this user on this machine (with the second one, Ray listens on the loopback
#: address), without usage statistics, at normal priority (Ray would run actors, and what they time, at nice 15), and
#: without Ray's limit on memory, because the judge's workers have limits of their own.
_LOCAL_ENVIRONMENT: Mapping[str, str] = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_worker_niceness": "0",
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
#: Bytes of Ray's shared memory: requests and replies are kilobytes, and Ray takes no less.
_STORE_BYTES = 80 << 20
#: Prefix of a directory's name.
_DIRECTORY_PREFIX = "kbe-ray-"
#: Most characters of the base directory: Ray puts sockets under it, whose names may have 107 characters in all.
_LONGEST_DIRECTORY = 4
#: Seconds that a host has to report its device: Ray starts a Python there, which imports torch from a cold disk.
_LOOK_SECONDS = 180.0
#: Seconds that a cluster has to accept a connection.
_CONNECT_SECONDS = 3.0


class Cluster:
    """A connection to a Ray cluster, or to one that is started on this machine and ends with it."""

    def __init__(self, address: str | None, *, cpus: int | None = None) -> None:
        """Connect; EvaluatorError when Ray is not installed, or no cluster answers.

        Args:
            address: of a running cluster, "auto" or "host:port"; None starts one on this machine.
            cpus: the number of cores of a cluster that is started here; None for those of the machine.
        """
        self._directory: Path | None = None
        #: GPUs of the host that has the most.
        self._sharing = 1
        ray = self._ray = _import_ray()
        #: Whether this object made the connection; one that the caller made before is kept.
        self._ours = not ray.is_initialized()
        if not self._ours:
            return
        _hush(ray)
        atexit.register(self.close)  # a command may end before its judges are started
        try:
            options: dict[str, Any] = {"address": address}
            if address is None:
                self._directory = _own_directory()
                options = {"address": "local", "num_cpus": cpus, "object_store_memory": _STORE_BYTES}
                options |= {"_temp_dir": str(self._directory), "include_dashboard": False}
            elif not reachable(address):
                raise ConnectionError("nothing listens there")
            # A running cluster may want a token from the environment.
            with _environment(_LOCAL_ENVIRONMENT) if address is None else contextlib.nullcontext():
                ray.init(**options, log_to_driver=False, logging_level="ERROR")
        except Exception as error:
            self.close()
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise EvaluatorError(
                f"no Ray cluster at {address or 'this machine'}: {reason}; start one with `ray start --head`, or leave "
                "work.ray_address out, which starts one here"
            ) from None

    def close(self) -> None:
        """Disconnect, and end a cluster that was started here. May be called twice."""
        atexit.unregister(self.close)
        if self._ours:
            self._ray.shutdown()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    def __str__(self) -> str:
        hosts = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        gpus, cores = (int(sum(host.get(name, 0) for host in hosts)) for name in ("GPU", "CPU"))
        return f"{len(hosts)} host{'s' if len(hosts) != 1 else ''}, {gpus} GPUs, {cores} cores"

    def devices(self, asked: tuple[str, ...] = ()) -> tuple[Device, ...]:
        """The devices for the judges, as the hosts see them; EvaluatorError when they are too few.

        Args:
            asked: one name for each judge, "cuda" or "cpu" (Ray places the judges, so an index has no meaning); when
                empty all GPUs, or one CPU judge for each host of a cluster without GPUs.
        """
        hosts = [node for node in self._ray.nodes() if node["Alive"]]
        gpus = {node["NodeID"]: int(node["Resources"].get("GPU", 0)) for node in hosts}
        on_cpu = asked[0] == "cpu" if asked else not any(gpus.values())
        if on_cpu:
            places = {node["NodeID"]: 1 for node in hosts if node["Resources"].get("CPU")}
        else:
            places = {node: count for node, count in gpus.items() if count}
        found = self._devices_of(places, "cpu" if on_cpu else "cuda:0")
        everywhere = [device for device, count in zip(found, places.values(), strict=True) for _ in range(count)]
        if not everywhere or (not on_cpu and len(asked) > len(everywhere)):
            raise EvaluatorError(
                f"--devices asks for {len(asked)} GPU{'' if len(asked) == 1 else 's'}, "
                f"the Ray cluster has {len(everywhere)}; ask for fewer, or leave --devices out"
            )
        wanted = len(asked) or len(everywhere)
        self._sharing = max(places.values())
        # CPU judges may share a host; they time one after another.
        return tuple(everywhere[number % len(everywhere)] for number in range(wanted))

    def fleet(
        self, devices: tuple[Device, ...], settings: EvaluationSettings, work: WorkSettings, *, judge: str = JUDGE
    ) -> Fleet:
        """One judge for each of these devices, placed by Ray; raises as `Fleet`. Its close closes the cluster."""
        on_cpu = devices[0].type == "cpu"
        cores = float(self._ray.cluster_resources().get("CPU", 1.0))
        # Ray counts whole cores or parts of one. CPU judges spread over the hosts, and each uses all cores of its host.
        resources = {"num_cpus": min(1.0, round(cores / len(devices), 3))} if on_cpu else {"num_cpus": 0, "num_gpus": 1}
        spec = JudgeSpec(
            device="cpu" if on_cpu else "cuda:0",
            settings=settings,
            work=work,
            judge=judge,
            sharing=1 if on_cpu else self._sharing,
            # Only a cluster that was started here has the same files.
            search_path=tuple(sys.path) if self._directory else (),
        )
        slots = [
            Slot(
                name=f"{'CPU' if on_cpu else 'GPU'} {number} of the cluster",
                start=partial(start_actor, self._ray, spec, resources),
            )
            for number in range(1, len(devices) + 1)
        ]
        return Fleet(slots, settings, mixed=work.mixed_devices, closing=self.close)

    def _devices_of(self, places: Mapping[str, int], name: str) -> list[Device]:
        """The device of each of these hosts."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        resources = {"num_cpus": 0} if name == "cpu" else {"num_cpus": 0, "num_gpus": 1}
        task = self._ray.remote(_device)
        found = [
            task.options(
                **resources, max_retries=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node_id=node, soft=False)
            ).remote(name)
            for node in places
        ]
        try:
            replies = self._ray.get(found, timeout=_LOOK_SECONDS)
        except self._ray.exceptions.RayError as error:
            raise EvaluatorError(
                f"a host of the Ray cluster did not report its device: {one_line(error)}; check that kbevolve is "
                "installed on every host and that a GPU is free there (`ray status`)"
            ) from None
        return [reply.result() for reply in replies]


def find_cluster(work: WorkSettings) -> tuple[Cluster, tuple[Device, ...]]:
    """Connect to the cluster of the settings, and find the devices that they ask for; raises as `Cluster`."""
    # A cluster that is started here has room for every CPU judge that was asked for.
    cpus = max(len(work.devices), len(os.sched_getaffinity(0)))
    cluster = Cluster(work.ray_address, cpus=cpus)
    try:
        return cluster, cluster.devices(work.devices)
    except BaseException:
        cluster.close()
        raise


def reachable(address: str) -> bool:
    """Whether something listens at "host:port"; "auto" and other schemes are left to Ray."""
    host, _, port = address.rpartition(":")
    if not port.isdigit() or "/" in host:
        return True
    try:
        socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS).close()
    except OSError:
        return False
    return True


def _device(name: str) -> JudgeReply:
    """Runs on a host: the device there."""
    os.environ.pop("OMP_NUM_THREADS", None)
    return JudgeReply.of(lambda: find_device(name))


def _import_ray() -> Any:
    try:
        # Ray reads at its import whether to listen on the loopback address only.
        with _environment(_LOCAL_ENVIRONMENT):
            import ray
    except ImportError:
        raise EvaluatorError(
            "Ray is not installed, which --workers ray needs; pip install 'kbevolve[ray]', or leave --workers out"
        ) from None
    return ray


@contextlib.contextmanager
def _environment(changes: Mapping[str, str]) -> Iterator[None]:
    """Set variables that Ray reads, and hide keys from the processes that it starts."""
    before = dict(os.environ)
    for name in before.keys() - without_secrets(before).keys():
        del os.environ[name]
    os.environ.update({name: value for name, value in changes.items() if name not in before})
    try:
        yield
    finally:
        for name in changes:
            os.environ.pop(name, None)
        os.environ.update(before)


def _own_directory() -> Path:
    """A directory for Ray's logs and sockets; those of processes that ended are removed."""
    base = Path(tempfile.gettempdir())
    base = base if len(str(base)) <= _LONGEST_DIRECTORY else Path("/tmp")
    directories.remove_stale(base, prefix=_DIRECTORY_PREFIX)
    return directories.empty(base, prefix=_DIRECTORY_PREFIX)


def _hush(ray: Any) -> None:
    """Keep Ray from printing a paragraph for every actor that dies; it has no setting for that."""
    with contextlib.suppress(AttributeError):
        ray._private.worker.print_to_stdstream = lambda data, ignore_prefix=False: None
