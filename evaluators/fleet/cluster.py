"""A Ray cluster: how to reach or start one, which devices it has, and a fleet of judges there, one for each GPU.

Ray places the actors, carries orders and replies, and says when an actor or its host is gone. Everything else, who is
asked next and what a death costs, is the fleet's. kbevolve must be installed on every host, in the same version; what
travels are records, among them problem and settings by value, and no key.

Ray is imported here and only when it is asked for: it takes a second, and most runs need one device of one machine.
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
from kbevolve.evaluators.fleet.actors import hire_actor, one_line
from kbevolve.evaluators.fleet.fleet import Fleet
from kbevolve.evaluators.fleet.judge_host import JUDGE, Commission, Reply, read
from kbevolve.evaluators.fleet.judge_process import without_secrets
from kbevolve.evaluators.fleet.slots import Opening

#: Of a cluster that is started here: for this user on this machine (Ray listens on the loopback address when told that
#: the system knows no clusters), without a word to Ray's makers, at the priority that everything else here has (Ray
#: would run actors at 15, and with them what is timed), and with memory left to the limits of the judge's workers.
_LOCAL_ENVIRONMENT: Mapping[str, str] = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_worker_niceness": "0",
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
#: Bytes of Ray's shared memory: orders and replies are kilobytes, and this is the least that Ray takes.
_STORE_BYTES = 80 << 20
#: Then follows the process id of who started it.
_DIRECTORY_PREFIX = "kbevolve-ray-"
#: Characters of a directory's name under which Ray's sockets still have names that a socket can have (107 in all).
_LONGEST_DIRECTORY = 30
#: Seconds that a host has to say what its device is: Ray starts a Python there, which imports torch from a cold disk.
_LOOK_SECONDS = 180.0
#: Seconds that a cluster has to answer a knock.
_KNOCK_SECONDS = 3.0


class Cluster:
    """A connection to a Ray cluster, or a cluster of this machine's own that ends with it."""

    def __init__(self, address: str | None, *, cpus: int | None = None) -> None:
        """Connect.

        Args:
            address: of a running cluster, "auto" or "host:port"; None starts one on this machine.
            cpus: what a cluster that is started here counts as its cores; None for those it has.

        Raises:
            EvaluatorError: Ray is not installed, or no cluster answers.
        """
        self._directory: Path | None = None
        #: GPUs of the host that has the most.
        self._sharing = 1
        ray = self._ray = _import_ray()
        #: Whether it ends when this does; a caller who is connected stays so.
        self._ours = not ray.is_initialized()
        if not self._ours:
            return
        _hush(ray)
        atexit.register(self.close)  # a command may end before its judges are hired
        quiet = {"log_to_driver": False, "logging_level": "ERROR", "include_dashboard": False}
        try:
            if address is None:
                self._directory = _own_directory()
                with _environment(_LOCAL_ENVIRONMENT):
                    ray.init(
                        address="local",
                        num_cpus=cpus,
                        object_store_memory=_STORE_BYTES,
                        _temp_dir=str(self._directory),
                        **quiet,
                    )
            else:
                del quiet["include_dashboard"]  # the running cluster has one or none
                if not reachable(address):
                    raise ConnectionError("nothing listens there")
                ray.init(address=address, **quiet)
        except Exception as error:
            self.close()
            words = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise EvaluatorError(
                f"no Ray cluster at {address or 'this machine'}: {words}; start one with `ray start --head`, or leave "
                "work.ray_address out to have one started here"
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
        """The devices that judges would be placed on, as the hosts see them.

        Args:
            asked: one name for each judge, "cuda" or "cpu" (an index means nothing here: Ray places them); all GPUs
                when empty, or one CPU judge for each host of a cluster without GPUs.

        Raises:
            EvaluatorError: there are not so many, or a host does not answer.
        """
        hosts = [node for node in self._ray.nodes() if node["Alive"]]
        gpus = {node["NodeID"]: int(node["Resources"].get("GPU", 0)) for node in hosts}
        on_cpu = asked[0] == "cpu" if asked else not any(gpus.values())
        if on_cpu:
            places = {node["NodeID"]: 1 for node in hosts if node["Resources"].get("CPU")}
        else:
            places = {node: count for node, count in gpus.items() if count}
        found = self._look(places, "cpu" if on_cpu else "cuda:0")
        everywhere = [device for device, count in zip(found, places.values(), strict=True) for _ in range(count)]
        if not everywhere or (not on_cpu and len(asked) > len(everywhere)):
            raise EvaluatorError(
                f"{len(asked)} GPUs were asked for, the Ray cluster has {len(everywhere)}; ask for fewer with --devices"
            )
        wanted = len(asked) or len(everywhere)
        self._sharing = max(places.values())
        # CPU judges may share a host; they take turns where they time.
        return tuple(everywhere[number % len(everywhere)] for number in range(wanted))

    def fleet(
        self, devices: tuple[Device, ...], settings: EvaluationSettings, work: WorkSettings, *, judge: str = JUDGE
    ) -> Fleet:
        """One judge for each of these devices, wherever Ray finds room. Closing the fleet closes the cluster.

        Raises:
            EvaluatorError: a judge cannot be had, or the devices differ.
        """
        on_cpu = devices[0].type == "cpu"
        cores = float(self._ray.cluster_resources().get("CPU", 1.0))
        # Ray counts whole cores or parts of one; judges of CPUs spread over the hosts, and each uses all that it finds.
        room = {"num_cpus": min(1.0, round(cores / len(devices), 3))} if on_cpu else {"num_cpus": 0, "num_gpus": 1}
        commission = Commission(
            device="cpu" if on_cpu else "cuda:0",
            settings=settings,
            work=work,
            judge=judge,
            sharing=1 if on_cpu else self._sharing,
            # Paths mean something to hosts of our own only.
            search_path=tuple(sys.path) if self._directory else (),
        )
        openings = [
            Opening(
                name=f"{'CPU' if on_cpu else 'GPU'} {number} of the cluster",
                hire=partial(hire_actor, self._ray, commission, room),
            )
            for number in range(1, len(devices) + 1)
        ]
        return Fleet(openings, settings, mixed=work.mixed_devices, closing=self.close)

    def _look(self, places: Mapping[str, int], name: str) -> list[Device]:
        """What each of these hosts calls its device."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        room = {"num_cpus": 0} if name == "cpu" else {"num_cpus": 0, "num_gpus": 1}
        look = self._ray.remote(_see)
        seen = [
            look.options(
                **room, max_retries=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node_id=node, soft=False)
            ).remote(name)
            for node in places
        ]
        try:
            replies = self._ray.get(seen, timeout=_LOOK_SECONDS)
        except self._ray.exceptions.RayError as error:
            raise EvaluatorError(
                f"a host of the Ray cluster did not say what its device is: {one_line(error)}; see that kbevolve is "
                "installed on every host and that a GPU is free there (`ray status`)"
            ) from None
        return [read(reply) for reply in replies]


def find_cluster(work: WorkSettings) -> tuple[Cluster, tuple[Device, ...]]:
    """Connect to the cluster that the settings mean, and the devices that they ask for there.

    Raises:
        EvaluatorError: Ray is not installed, no cluster answers, or it has not these devices.
    """
    # So many CPU judges as were asked for find room in a cluster that is started for them.
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
        socket.create_connection((host, int(port)), timeout=_KNOCK_SECONDS).close()
    except OSError:
        return False
    return True


def _see(name: str) -> Reply:
    """Runs on a host: the device there."""
    os.environ.pop("OMP_NUM_THREADS", None)
    try:
        return Reply(found=find_device(name))
    except EvaluatorError as error:
        return Reply(error=error)


def _import_ray() -> Any:
    try:
        # Before the import: Ray reads there whether it is on a loopback address only.
        with _environment(_LOCAL_ENVIRONMENT):
            import ray
    except ImportError:
        raise EvaluatorError(
            "Ray is not installed, which --workers ray needs; pip install 'kbevolve[ray]', or leave --workers out"
        ) from None
    return ray


@contextlib.contextmanager
def _environment(changes: Mapping[str, str]) -> Iterator[None]:
    """What Ray reads, and what the processes that it starts inherit: no keys."""
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
    """Where Ray keeps logs and sockets, instead of a place where they stay for ever."""
    base = Path(tempfile.gettempdir())
    base = base if len(str(base)) <= _LONGEST_DIRECTORY else Path("/tmp")
    for left in base.glob(f"{_DIRECTORY_PREFIX}*"):
        owner = left.name.removeprefix(_DIRECTORY_PREFIX).partition("-")[0]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists():
            shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{_DIRECTORY_PREFIX}{os.getpid()}-", dir=base))


def _hush(ray: Any) -> None:
    """Ray prints a paragraph for every actor that dies into whatever is shown here, and has no switch for that."""
    with contextlib.suppress(AttributeError):
        ray._private.worker.print_to_stdstream = lambda data, ignore_prefix=False: None
