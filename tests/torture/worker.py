"""A process that runs cases of one kind and reports each, so that its parent knows in which one it crashed.

Arguments: kind, seed, first case, number of cases (0: as many as time allows), seconds, and a directory.
Every line of the output is JSON: `{"begin": 7}`, then `{"end": 7, "counts": {...}, "violation": null}`.
"""

import faulthandler
import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from tests.torture.cases import Draw, remove
from tests.torture.kinds import KINDS


def main(name: str, seed: int, first: int, cases: int, seconds: float, work: Path) -> None:
    faulthandler.enable()
    began = time.monotonic()
    number, stop = first, first + cases if cases else sys.maxsize
    while number < stop and (number == first or time.monotonic() < began + seconds):
        number = run_until_broken(name, seed, number, stop, began + seconds, work)


def run_until_broken(name: str, seed: int, number: int, stop: int, end: float, work: Path) -> int:
    """Run cases with one preparation, which ends with a violation; returns the next case."""
    remove(work)
    work.mkdir(parents=True)
    with KINDS[name].opened(work) as case:
        while number < stop:
            say(begin=number)
            violation, counts = None, {}
            try:
                counts = dict(case(Draw(name, seed, number)))
            except Exception:  # noqa: BLE001 (whatever it is, it is a finding)
                violation = traceback.format_exc()
            say(end=number, counts=counts, violation=violation)
            number += 1
            if violation is not None or time.monotonic() > end:
                break
    return number


_OUTPUT = os.dup(1)


def say(**what: Any) -> None:
    """Write unbuffered: a child that inherits a buffer must not repeat it."""
    os.write(_OUTPUT, (json.dumps(what) + "\n").encode())


if __name__ == "__main__":
    # Output of libraries must not mix with the lines.
    os.dup2(2, 1)
    kind_, seed_, first_, cases_, seconds_, work_ = sys.argv[1:]
    main(kind_, int(seed_), int(first_), int(cases_), float(seconds_), Path(work_))
