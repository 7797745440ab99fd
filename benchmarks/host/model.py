"""Judges of one host as queues: the driver's lock, each GPU's gate, workers that start ahead of need, and builds.

A discrete-event simulation (SimPy). The judges of a host share its driver, whose lock one process has at a time, and
nothing else, because each judge keeps to its share of the cores. Hosts share nothing but the queue of children.
"""

import statistics
from collections.abc import Generator
from dataclasses import dataclass, field
from random import Random
from typing import Any

import simpy

Steps = Generator[simpy.Event, Any, Any]

#: Kernels that a judge has in progress at once, workers that it starts at once, and how many it keeps ready
#: (16 cores; `sandbox.worker_pool`).
WIDTH, STARTERS, READY = 14, 4, 14
#: A process asks for the lock in slices of so many seconds: others get it in between.
SLICE = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Seconds of each step of a child, the waits left out: an H200 of 2026-11-22, the mix of `benchmarks.throughput`.

    The lock's are measured (`benchmarks.driver_time`, `benchmarks.turnover`: 13.2 workers a second), and so is the
    timing. Build and trials are set so that one judge's builds take some 4 s, with the pauses, and its trials 1.0 s.
    The rest of a start, and the spread, are assumed.
    """

    #: A worker's start, the lock left out.
    start: float = 0.2
    #: The driver's lock in a start, in the trials, and in a worker's end.
    start_lock: float = 0.063
    trials_lock: float = 0.014
    end_lock: float = 0.013
    #: A compiler on its core. It is paused while a kernel is timed.
    build: float = 2.4
    #: Beside others in their trials.
    trials: float = 0.95
    #: Alone on the GPU.
    timing: float = 0.33
    #: Of the times of builds and trials: standard deviation over mean.
    spread: float = 0.5


class Gate:
    """As `DeviceGate`: kernels share a GPU in their trials, and one that is timed has it alone and goes first."""

    def __init__(self, environment: simpy.Environment) -> None:
        self._environment = environment
        self._sharing, self._waiting, self.alone = 0, 0, False
        self.changed = environment.event()

    def share(self) -> Steps:
        while self.alone or self._waiting:
            yield self.changed
        self._sharing += 1

    def leave(self) -> None:
        self._sharing -= 1
        self._notify()

    def take(self) -> Steps:
        self._waiting += 1
        while self.alone or self._sharing:
            yield self.changed
        self._waiting -= 1
        self.alone = True
        self._notify()

    def give(self) -> None:
        self.alone = False
        self._notify()

    def _notify(self) -> None:
        told, self.changed = self.changed, self._environment.event()
        told.succeed()


@dataclass(kw_only=True)
class Host:
    """One host: its driver's lock, and judges that take children from a queue which all hosts share."""

    environment: simpy.Environment
    children: simpy.Store
    service: Service
    rng: Random
    lock: simpy.Resource = field(init=False)
    #: Seconds for which the lock was held.
    lock_seconds: float = 0.0
    #: Of each child: seconds of its wait for a worker and of its build, and when it ended.
    waits: list[float] = field(default_factory=list)
    builds: list[float] = field(default_factory=list)
    ended: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lock = simpy.Resource(self.environment)

    def add_judge(self) -> None:
        """A judge on a GPU of its own."""
        gate, workers = Gate(self.environment), simpy.Store(self.environment, capacity=READY)
        for _ in range(STARTERS):
            self.environment.process(self._start_workers(gate, workers))
        for _ in range(WIDTH):
            self.environment.process(self._judge(gate, workers))

    def _start_workers(self, gate: Gate, workers: simpy.Store) -> Steps:
        while True:
            yield from self._unless_timed(gate, self.service.start)
            yield from self._locked(self.service.start_lock)
            yield workers.put(object())

    def _judge(self, gate: Gate, workers: simpy.Store) -> Steps:
        environment = self.environment
        while True:
            yield self.children.get()
            asked = environment.now
            yield workers.get()
            began = environment.now
            yield from self._unless_timed(gate, self._drawn(self.service.build))
            self.waits.append(began - asked)
            self.builds.append(environment.now - began)
            yield from gate.share()
            yield from self._locked(self.service.trials_lock)
            yield environment.timeout(self._drawn(self.service.trials))
            gate.leave()
            yield from gate.take()
            yield environment.timeout(self.service.timing)
            gate.give()
            yield from self._locked(self.service.end_lock)
            self.ended.append(environment.now)

    def _locked(self, seconds: float) -> Steps:
        while seconds > 1e-9:
            held = min(SLICE, seconds)
            with self.lock.request() as turn:
                yield turn
                yield self.environment.timeout(held)
            self.lock_seconds += held
            seconds -= held

    def _unless_timed(self, gate: Gate, seconds: float) -> Steps:
        """Work for so long, paused while a kernel is timed."""
        while seconds > 1e-9:
            if gate.alone:
                yield gate.changed
                continue
            began = self.environment.now
            yield self.environment.timeout(seconds) | gate.changed
            seconds -= self.environment.now - began

    def _drawn(self, mean: float) -> float:
        # A gamma distribution has no negative times.
        shape = self.service.spread**-2
        return self.rng.gammavariate(shape, mean / shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """What a simulation says."""

    #: Children an hour, from the first start to the last end.
    an_hour: float
    #: Share of the time for which the lock of a host is held, the mean over hosts.
    lock_busy: float
    #: Mean seconds that a child waits for a worker, and that its build takes with all pauses.
    wait: float
    build: float


def simulated(service: Service, *, hosts: int, gpus: int, children: int, seed: int) -> Throughput:
    """`children` for each GPU, on hosts of `gpus` GPUs each; workers are ready when the first one comes."""
    environment, rng = simpy.Environment(), Random(seed)
    queue: simpy.Store = simpy.Store(environment)
    built = [Host(environment=environment, children=queue, service=service, rng=rng) for _ in range(hosts)]
    for host in built:
        for _ in range(gpus):
            host.add_judge()
    # Until the spares are there, as before a run's first child.
    environment.run(until=(warm := 10.0))
    count = children * hosts * gpus
    before = sum(host.lock_seconds for host in built)
    for number in range(count):
        queue.put(number)
    while sum(len(host.ended) for host in built) < count:
        environment.step()
    seconds = environment.now - warm
    return Throughput(
        an_hour=3600 * count / seconds,
        lock_busy=(sum(host.lock_seconds for host in built) - before) / seconds / hosts,
        wait=statistics.fmean(wait for host in built for wait in host.waits),
        build=statistics.fmean(one for host in built for one in host.builds),
    )
