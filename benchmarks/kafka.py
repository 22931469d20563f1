"""
The Kafka consumer beside pyrallel-consumer, FastStream and a plain loop, on one broker.

Owns which cases run, with what sizes, and which figures are set side by side. Everybody does
the same work on the same topic: 8 partitions, 100 keys, 220-byte values.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.servers.kafka import Broker, Missing

from benchmarks import kafka_peers, kafka_redrive
from benchmarks.fresh import ABSENT, measure, new_folder
from benchmarks.kafka_lanes import bare_lanes, fed_lanes
from benchmarks.kafka_members import members
from benchmarks.kafka_topics import KEYS, PARTITIONS, delete, filled
from benchmarks.kafka_work import SLEEPS, bare_processes
from benchmarks.report import Ratio, Report, Row, Table
from benchmarks.sqlite_history import growth

if TYPE_CHECKING:
    from collections.abc import Callable

ORDERINGS = ("key_hash", "partition", "unordered")
LANES = {"key_hash": KEYS, "partition": PARTITIONS, "unordered": 1_000}  # what may run at once
PYRALLEL = "pyrallel-consumer"
FLAT = 8  # MB
RATE = "records/s"


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much and how often."""

    many: int  # for whoever is fast
    peers: int  # pyrallel-consumer, which is faster the more there are
    some: int
    few: int
    slept: int
    worked: int  # in processes, whose start is on the clock
    failing: int
    runs: int
    turns: int  # of those whose ratio counts: the machine's speed changes, so they go one after the other, often
    cut: float  # seconds for a slow peer
    percents: tuple[int, ...]
    orderings: tuple[str, ...]  # of the handlers that sleep
    extras: bool  # latency, memory, and peers' rows that no ratio needs
    memory: int = 5_000_000
    behind: int = 50_001


FULL = Sizes(
    many=200_000, peers=50_000, some=20_000, few=4_000, slept=100_000, worked=10_000, failing=100_000,
    runs=3, turns=5, cut=20.0, percents=(0, 1, 10, 50, 100), orderings=ORDERINGS, extras=True,
)  # fmt: skip
QUICK = Sizes(
    many=50_000, peers=10_000, some=2_500, few=1_000, slept=10_000, worked=2_000, failing=20_000,
    runs=1, turns=1, cut=3.0, percents=(0, 10), orderings=("key_hash",), extras=False,
)  # fmt: skip


def run(*, quick: bool) -> Report:
    """Measure everything, one case at a time, on a broker of our own."""
    report = Report(name="kafka", quick=quick)
    try:
        with Broker() as broker:
            Bench(report, QUICK if quick else FULL, broker.bootstrap).run()
    except Missing as why:
        report.notes.append(f"Nothing was measured: {why}")
    return report


@dataclass(frozen=True, slots=True)
class Entry:
    """Who runs what on how many records, 0 if without Kafka."""

    name: str
    setting: str
    case: Callable[..., Any]
    n: int
    arguments: dict[str, Any]


class Bench:
    """One run of the whole benchmark."""

    def __init__(self, report: Report, sizes: Sizes, bootstrap: str) -> None:
        self.report, self.sizes, self.bootstrap = report, sizes, bootstrap
        self._topics: dict[int, str] = {}
        self._absent: set[str] = set()
        self._names = 0

    def run(self) -> None:
        """Do everything in the order of the report."""
        self._no_op()
        self._sleeping()
        self._cpu()
        self._failing()
        if self.sizes.extras:
            self._latency()
            self._restart()
            self._more_than_one_core()
            self._memory()

    # ------------------------------------------------------------------ no-op

    def _no_op(self) -> None:
        sizes, rows = self.sizes, []
        plain, *mine = self._in_turns(
            Entry("plain loop", "consume(500), decode, commit", kafka_peers.plain_loop, sizes.many, {}),
            *(_ours(f"{o}, async worker", sizes.many, ordering=o) for o in ORDERINGS),
        )
        ours = dict(zip(ORDERINGS, mine, strict=True))
        rows += [*mine, plain]
        best: dict[str, list[Row]] = {o: self._pyrallel_no_op(o) for o in ORDERINGS}
        rows += [row for found in best.values() for row in found]
        default = self._row(
            "FastStream", "default: acknowledges first, commits every 5 s", kafka_peers.faststream, sizes.some,
            batch=False, cut=2 * sizes.cut,
        )  # fmt: skip
        batch = self._row(
            "FastStream", "batch=True, max_records=500, ACK", kafka_peers.faststream, sizes.many,
            batch=True, cut=sizes.cut,
        )  # fmt: skip
        rows += [row for row in (default, batch) if row]
        self._table("A handler that does nothing", RATE, rows)
        self._beside_pyrallel(ours, best)
        if default:
            self._ratio("no-op, key order, beside FastStream's default", ours["key_hash"], default, 15)
        self._ratio("no-op, key order, beside the plain loop", ours["key_hash"], plain, 0.5)

    def _pyrallel_no_op(self, ordering: str) -> list[Row]:
        engines = ("async", "process") if self.sizes.extras else ("async",)
        found = [
            self._row(
                PYRALLEL, f"{ordering}, {engine}, best", kafka_peers.pyrallel, self.sizes.peers,
                engine=engine, ordering=ordering, cut=self.sizes.cut,
            )
            for engine in engines
        ]  # fmt: skip
        return [row for row in found if row]

    def _beside_pyrallel(self, ours: dict[str, Row | None], best: dict[str, list[Row]]) -> None:
        bars = {"key_hash": (8.0, 13.0), "partition": (8.0, 13.0), "unordered": (3.0, None)}
        for ordering, rows in best.items():
            if rows:
                peer = max(rows, key=lambda row: row.median)
                bar, aim = bars[ordering]
                self._ratio(f"no-op, {ordering}, beside {PYRALLEL}'s best", ours[ordering], peer, bar, aim)

    # ------------------------------------------------------------------ sleeps and CPU

    def _sleeping(self) -> None:
        for name in ("0.5 ms", "5 ms"):
            rows, sleep = [], SLEEPS[name]
            for ordering in self.sizes.orderings:
                n = self._few_lanes(sleep) if ordering == "partition" else self.sizes.slept
                lanes = LANES[ordering]
                alone = {"lanes": lanes, "n": n, "sleep": sleep}
                fed = {"lanes": lanes, "ordering": ordering, "sleep": sleep}
                bare, by_hand, ours = self._in_turns(
                    Entry("bare asyncio", f"{lanes} lanes, no Kafka", bare_lanes, 0, alone),
                    Entry("by hand", f"{lanes} lanes, consume(500), one commit at the end", fed_lanes, n, fed),
                    _ours(f"{ordering}, async worker", n, ordering=ordering, sleep=sleep),
                )
                rows += [ours, bare, by_hand, *self._pyrallel_sleeping(ordering, min(n, self.sizes.some), sleep)]
                self._ratio(f"{name} of I/O, {ordering}, beside bare asyncio lanes", ours, bare, 0.9)
                self._beside(f"{name} of I/O, {ordering}", bare, by_hand)
            self._table(f"A handler that awaits for {name}", RATE, rows)

    def _beside(self, what: str, bare: Row | None, other: Row | None) -> None:
        """Note how *other* fares beside *bare*, of whom nothing is asked."""
        if self.sizes.extras and bare and other:
            share = other.median / bare.median
            self.report.notes.append(f"{what}: {other.name}, {other.setting}: {share:.2f} of bare asyncio lanes.")

    def _few_lanes(self, sleep: float) -> int:
        """Return as many records as eight lanes work on for some seconds: the start is on the clock."""
        return 2 * self.sizes.few if sleep >= SLEEPS["5 ms"] else 10 * self.sizes.few

    def _pyrallel_sleeping(self, ordering: str, n: int, sleep: float) -> list[Row | None]:
        if not self.sizes.extras:
            return []
        return [
            self._row(
                PYRALLEL, f"{ordering}, async, best", kafka_peers.pyrallel, n,
                engine="async", ordering=ordering, sleep=sleep, cut=self.sizes.cut,
            )
        ]  # fmt: skip

    def _cpu(self) -> None:
        n = self.sizes.worked
        cores = os.cpu_count() or 2
        setting = f"key_hash, {cores} processes"
        plain, ours, one, all_ = self._in_turns(
            Entry("plain loop", "the same work in the loop", kafka_peers.plain_loop, n, {"cpu": True}),
            Entry("redrive", setting, kafka_redrive.consume_in_processes, n, {"ordering": "key_hash"}),
            Entry("bare processes", "1, no Kafka", bare_processes, 0, {"n": n, "processes": 1}),
            Entry("bare processes", f"{cores}, no Kafka", bare_processes, 0, {"n": n, "processes": cores}),
        )
        rows = [ours, plain, one, all_]
        if self.sizes.extras:
            rows.append(
                self._row(
                    PYRALLEL, f"{setting}, best", kafka_peers.pyrallel, n,
                    engine="process", ordering="key_hash", cpu=True, cut=self.sizes.cut,
                )
            )  # fmt: skip
        self._table("A handler that uses the CPU: 2,000 × sha256", RATE, rows)
        if plain:
            self.report.notes.append(f"CPU work: {1000 / plain.median:.2f} ms a record in the plain loop.")
        if one and all_:
            scale = all_.median / one.median
            self.report.notes.append(f"All cores give bare processes {scale:.2f} × what one gives: nobody gets more.")
        self._ratio("CPU work in processes, beside the plain loop", ours, plain, 1.5, 1.7)

    def _more_than_one_core(self) -> None:
        """Measure what one starts where one interpreter is not enough; late, for it leaves the broker much to do."""
        rows: list[Row | None] = []
        for name, sleep in (("0.5 ms", SLEEPS["0.5 ms"]), ("5 ms", SLEEPS["5 ms"])):
            for ordering in ("key_hash", "unordered"):
                n, lanes = self.sizes.slept, LANES[ordering]
                alone = {"lanes": lanes, "n": n, "sleep": sleep}
                both = {"n": 4 * n, "processes": 2, "ordering": ordering, "sleep": sleep, "bootstrap": self.bootstrap}
                bare, two = self._in_turns(
                    Entry("bare asyncio", f"{name}, {lanes} lanes, no Kafka", bare_lanes, 0, alone),
                    Entry("redrive", f"{name}, {ordering}, 2 members", members, 0, both),
                )
                rows += [two, bare]
                self._beside(f"{name} of I/O, {ordering}", bare, two)
        self._table("Two members of a group, where handlers await", RATE, rows)

    # ------------------------------------------------------------------ failures

    def _failing(self) -> None:
        n = self.sizes.failing
        found: dict[int, list[dict[str, Any]]] = {percent: [] for percent in self.sizes.percents}
        for _ in range(self.sizes.turns):
            for percent, answers in found.items():
                answers.extend(self._answers(kafka_redrive.with_failures, n, 1, percent=percent, ordering="key_hash"))
        rows = [self._figure("redrive", f"{percent} % fail every try", answers) for percent, answers in found.items()]
        dead = [
            self._figure("redrive", f"{percent} % fail every try", answers, "dead")
            for percent, answers in found.items()
            if percent
        ]
        peers = self._failing_peer()
        rows += [self._figure(PYRALLEL, "10 % fail every try, async, key_hash, best", peers)] if peers else []
        dead += [self._figure(PYRALLEL, "10 % fail every try, async, key_hash, best", peers, "dead")] if peers else []
        self._table("Three tries, 1 ms apart, then a dead letter: records handled or dead-lettered", RATE, rows)
        self._table("… of which dead letters, each confirmed", "dead letters/s", dead)
        tenth = self.sizes.percents.index(10)
        self._ratio("10 % failing every try, beside none failing", rows[tenth], rows[0], 0.5)
        self._replaying(found[self.sizes.percents[-1]][: self.sizes.runs])

    def _failing_peer(self) -> list[dict[str, Any]]:
        found = []
        for _ in range(self.sizes.runs):
            topic = filled(self.bootstrap, self._name("failing"), self.sizes.some // 2)
            found += self._on(kafka_peers.with_failures, topic, self.sizes.some // 2, percent=10, cut=self.sizes.cut)
        return found

    def _replaying(self, answers: list[dict[str, Any]]) -> None:
        topic = self._topic(self.sizes.failing)
        self._topics.pop(self.sizes.failing)  # it will hold more than it says
        found = [
            answer
            for each in answers
            for answer in self._on(kafka_redrive.replay, topic, each["dead"], suffix=each["suffix"])
        ]
        self._table("Replay: dead letters sent home, confirmed, committed", "dead letters/s",
                    [self._figure("redrive", "redrive kafka replay, no rate", found)])  # fmt: skip

    # ------------------------------------------------------------------ latency, restart, memory

    def _latency(self) -> None:
        rate, n = 1_000, 5_000
        healthy = self._p99("redrive", "key_hash, all healthy", kafka_redrive.latency, n, rate=rate, poison=False)
        poisoned = self._p99(
            "redrive", "healthy keys beside one that always fails", kafka_redrive.latency, n, rate=rate, poison=True
        )
        rows = [healthy, poisoned]
        for who in (PYRALLEL, "FastStream"):
            setting = "async, key_hash, best" if who == PYRALLEL else "default"
            rows.append(self._p99(who, setting, kafka_peers.latency, n, rate=rate, who=who))
        self._table(f"From sent to handled at {rate:,} records a second", "ms, p99", rows)
        if healthy and poisoned:
            what = "p99 of healthy keys beside a poisoned one, beside an all-healthy run"
            self.report.ratios.append(Ratio(what=what, value=poisoned.median / healthy.median, bar=1.5, at_least=False))

    def _p99(self, name: str, setting: str, case: Callable[..., Any], n: int, **arguments: Any) -> Row | None:
        found = [
            answer for _ in range(self.sizes.runs) for answer in self._on(case, self._name("paced"), n, **arguments)
        ]
        runs = tuple(answer["p99"] for answer in found)
        return Row(name=name, setting=setting, n=n, runs=runs, ours=name == "redrive") if runs else None

    def _restart(self) -> None:
        n = self.sizes.behind
        topic = filled(self.bootstrap, self._name("stuck"), n, partitions=1)
        for answer in self._on(kafka_redrive.restart, topic, n):
            what = f"kill -9 with one stuck record and {n - 1:,} done behind it: done ones that ran again"
            self.report.ratios.append(Ratio(what=what, value=answer["again"], bar=0, at_least=False, unit="records"))

    def _memory(self) -> None:
        n = self.sizes.memory
        topic = filled(self.bootstrap, self._name("long"), n)
        for answer in self._on(kafka_redrive.consume, topic, n, ordering="key_hash", samples=True):
            samples = [(int(count), float(size)) for count, size in answer["memory"]]
            most = max(size for _, size in samples)
            self.report.notes.append(
                f"Memory, {n:,} records: {most:.0f} MB resident at most, the client's prefetch included; "
                f"{n / answer['seconds']:,.0f} records/s over the whole run."
            )
            what = f"memory grown over the second half of {n:,} records"
            self.report.ratios.append(Ratio(what=what, value=growth(samples), bar=FLAT, at_least=False, unit="MB"))
        delete(self.bootstrap, topic)

    # ------------------------------------------------------------------ one case

    def _in_turns(self, *entries: Entry) -> list[Row | None]:
        """Run all of *entries* once, then all again, as often as there are turns."""
        found: list[list[dict[str, Any]]] = [[] for _ in entries]
        for _ in range(self.sizes.turns):
            for entry, answers in zip(entries, found, strict=True):
                answers.extend(self._answers(entry.case, entry.n, 1, **entry.arguments))
        return [
            self._figure(entry.name, entry.setting, answers) if answers else None
            for entry, answers in zip(entries, found, strict=True)
        ]

    def _row(self, name: str, setting: str, case: Callable[..., Any], n: int, /, **arguments: Any) -> Row | None:
        answers = self._answers(case, n, self.sizes.runs, **arguments)
        return self._figure(name, setting, answers) if answers else None

    def _answers(self, case: Callable[..., Any], n: int, runs: int, /, **arguments: Any) -> list[dict[str, Any]]:
        """Run *case* on a topic of *n* records, or without one if *n* is 0, *runs* times."""
        place = {} if n == 0 else {"topic": self._topic(n), "n": n, "bootstrap": self.bootstrap}
        found = [self._measure(case, place, **arguments) for _ in range(runs)]
        return [answer for answer in found if answer]

    def _on(self, case: Callable[..., Any], topic: str, n: int, **arguments: Any) -> list[dict[str, Any]]:
        answer = self._measure(case, {"topic": topic, "n": n}, **arguments)
        return [answer] if answer else []

    def _measure(
        self, case: Callable[..., Any], place: dict[str, Any] | None = None, **arguments: Any
    ) -> dict[str, Any] | None:
        with new_folder() as folder:
            needs = {} if case in (bare_lanes, bare_processes) else {"bootstrap": self.bootstrap}
            answer = measure(case, folder, **{**needs, **(place or {}), **arguments})
        missing = answer.get(ABSENT)
        if missing and missing not in self._absent:
            self._absent.add(missing)
            self.report.notes.append(f"{missing} is not installed here; its rows are missing.")
        return None if missing else answer

    def _figure(self, name: str, setting: str, answers: list[dict[str, Any]], what: str = "n") -> Row:
        return Row(
            name=name,
            setting=setting,
            n=min(answer[what] for answer in answers),
            runs=tuple(answer[what] / answer["seconds"] for answer in answers),
            ours=name == "redrive",
        )

    def _topic(self, n: int) -> str:
        if n not in self._topics:
            self._topics[n] = filled(self.bootstrap, self._name("orders"), n)
        return self._topics[n]

    def _name(self, word: str) -> str:
        self._names += 1
        return f"{word}-{self._names}"

    def _table(self, title: str, unit: str, rows: list[Row | None]) -> None:
        self.report.tables.append(Table(title=title, unit=unit, rows=[row for row in rows if row]))

    def _ratio(self, what: str, ours: Row | None, theirs: Row | None, bar: float, aim: float | None = None) -> None:
        if ours and theirs:
            value = ours.median / theirs.median
            self.report.ratios.append(Ratio(what=what, value=value, bar=bar, aim=aim))


def _ours(setting: str, n: int, **arguments: Any) -> Entry:
    return Entry("redrive", setting, kafka_redrive.consume, n, arguments)
