"""A process that keeps changing the master and vacuums it.

Argument: the directory of the test; it ends when there is a file named "stop".
"""

import sys
import time
from pathlib import Path

import numpy as np

from adjoin import Master
from tests.spark.market import History, changes

PAUSE_SECONDS = 0.1
"""The pause between two versions, so that the stream gets its share of the machine."""


def run(work: Path) -> None:
    history, random = History(work / "history"), np.random.default_rng(5)
    while not (work / "stop").exists():
        with Master.open(work / "master") as newest:
            version = newest.version + 1
            changed = changes(version, random)
            newest.apply(changed, txn=f"change {version}").close()
            history.keep(version, changed)
            if version % 5 == 0:
                newest.vacuum(keep=2)
        time.sleep(PAUSE_SECONDS)


if __name__ == "__main__":
    run(Path(sys.argv[1]))
