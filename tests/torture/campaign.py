"""Runs kinds of cases in separate processes and records the outcomes."""

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from tests.torture.cases import Kind, remove

ROOT = Path(__file__).resolve().parents[2]
_MOST_VIOLATIONS = 20
_START_SECONDS = 240.0
"""Time for imports, compiled kernels and whatever the cases share."""


@dataclass(frozen=True)
class Violation:
    """A broken promise.

    Attributes:
        kind: The kind of the case.
        seed: The seed of the campaign.
        case: Its number.
        text: What was observed.
    """

    kind: str
    seed: int
    case: int
    text: str

    @property
    def how(self) -> str:
        """The command that reproduces it."""
        return f'python -m tests.torture --only "{self.kind}" --seed {self.seed} --case {self.case}'


@dataclass
class Outcome:
    """The outcome of one kind."""

    kind: str
    cases: int = 0
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)


class Runner:
    """Runs cases of one kind; a crash of the process is a violation, after which a new process continues."""

    def __init__(self, kind: Kind, seed: int, first: int = 0, cases: int = 0) -> None:
        self._kind, self._seed = kind, seed
        self._next, self._stop = first, first + cases if cases else sys.maxsize
        self.outcome = Outcome(kind.name)

    def run(self, seconds: float) -> Outcome:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="adjoin-torture-", ignore_cleanup_errors=True) as work:
            while self._next < self._stop and len(self.outcome.violations) < _MOST_VIOLATIONS:
                left = began + seconds - time.monotonic()
                if left <= 0 and self.outcome.cases:
                    break
                self._live(max(left, 0.0), Path(work))
        self.outcome.seconds = time.monotonic() - began
        return self.outcome

    def _live(self, seconds: float, work: Path) -> None:
        """Run one process until it ends."""
        cases = self._stop - self._next if self._stop < sys.maxsize else 0
        arguments = [self._kind.name, self._seed, self._next, cases, seconds, work / "work"]
        errors = (work / "errors").open("w+b")
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "tests.torture.worker", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment(self._kind),
            cwd=ROOT,
            start_new_session=True,
        )
        try:
            unfinished = self._listen(process)
        finally:
            _end(process)
        if unfinished is not None or process.returncode != 0:
            errors.seek(0)
            said = errors.read().decode(errors="replace")[-6000:]
            self._crashed(unfinished, process.returncode, said)
        errors.close()
        remove(work / "work")

    def _listen(self, process: subprocess.Popen[bytes]) -> int | None:
        """Record what the process reports; returns the case it did not finish."""
        lines: queue.Queue[bytes | None] = queue.Queue()
        threading.Thread(target=_pass_on, args=[process.stdout, lines], daemon=True).start()
        unfinished, patience = None, _START_SECONDS
        while True:
            try:
                line = lines.get(timeout=patience)
            except queue.Empty:
                return self._next if unfinished is None else unfinished
            if line is None:
                return unfinished
            told = json.loads(line)
            patience = self._kind.seconds
            if "begin" in told:
                unfinished = told["begin"]
            else:
                unfinished = None
                self._ended(told)

    def _ended(self, told: dict[str, Any]) -> None:
        self.outcome.cases += 1
        self._next = told["end"] + 1
        self.outcome.counts.update(told["counts"])
        if told["violation"]:
            self._violated(told["end"], told["violation"])

    def _crashed(self, case: int | None, code: int, said: str) -> None:
        case = self._next if case is None else case
        self._next = case + 1
        self.outcome.cases += 1
        how = "hung" if code == -signal.SIGKILL else f"ended with {code}"
        self._violated(case, f"the process {how}\n{said}")

    def _violated(self, case: int, text: str) -> None:
        self.outcome.violations.append(Violation(self._kind.name, self._seed, case, text))


def environment(kind: Kind) -> dict[str, str]:
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    return {**os.environ, "PYTHONPATH": path, **kind.environment}


def _pass_on(output: IO[bytes], lines: "queue.Queue[bytes | None]") -> None:
    with output:
        for line in output:
            lines.put(line)
    lines.put(None)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process, which is done or hangs, and everything it has started."""
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def run_all(kinds: Sequence[Kind], seed: int, minutes: float, jobs: int) -> list[Outcome]:
    """Run all kinds, several at a time, each for its share of the time."""
    in_all = sum(kind.share for kind in kinds)
    # Longest first, so that the last ones end at about the same time.
    ordered = sorted(kinds, key=lambda kind: -kind.share)

    def run(kind: Kind) -> Outcome:
        outcome = Runner(kind, seed).run(60 * minutes * jobs * kind.share / in_all)
        print(line_of(outcome), flush=True)
        return outcome

    with ThreadPoolExecutor(min(jobs, len(ordered))) as threads:
        outcomes = list(threads.map(run, ordered))
    return sorted(outcomes, key=lambda outcome: [kind.name for kind in kinds].index(outcome.kind))


def line_of(outcome: Outcome) -> str:
    counts = ", ".join(f"{count:,} {what}" for what, count in outcome.counts.most_common(14))
    bad = f"{len(outcome.violations)} VIOLATIONS" if outcome.violations else "ok"
    return f"{outcome.kind:20} {outcome.cases:7,} cases {outcome.seconds:6.0f} s  {bad:14} {counts}"
