import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.world import SCENARIOS

QUICK = ("apply", "compact", "sequence")
_CHILD = """
import os, shutil, signal, sys
from pathlib import Path
from adjoin.master import files
from tests.faults.world import SCENARIOS, Killer, fresh

os.fsync = lambda descriptor: None
name, root = sys.argv[1], Path(sys.argv[2])
scenario = SCENARIOS[name]
scenario.prepare(root / "template")
scenario.act(fresh(root / "template", root / "warm"))
step, killed = 0, True
while killed:
    step += 1
    path = fresh(root / "template", root / str(step))
    child = os.fork()
    if child == 0:
        files.change = Killer(step).change
        scenario.act(path)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    killed = os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGKILL if killed else os.WEXITSTATUS(status) == 0
    if killed and step % 3 != 1:
        shutil.rmtree(path)
print(step)
"""


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in SCENARIOS]
)
def test_a_killed_process_leaves_intact_versions(name: str, tmp_path: Path) -> None:
    """The child is killed with signal 9 before every third step."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path.cwd()), *sys.path])}
    child = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _CHILD, name, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert child.returncode == 0, child.stderr
    survivors = sorted(path for path in tmp_path.iterdir() if path.name.isdigit())
    assert len(survivors) > 4
    for path in survivors:
        SCENARIOS[name].check(path)
