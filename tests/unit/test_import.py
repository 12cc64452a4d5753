"""Importing adjoin changes nothing in the process beyond its own modules."""

import ctypes
import json
import subprocess
import sys

import pytest

SNAPSHOT = """
import atexit, json, locale, logging, os, signal, sys, threading, warnings

import numba, numpy, pyarrow, pyarrow.compute
from numba.core import event

def snapshot():
    return {
        "threads": len(os.listdir("/proc/self/task")),
        "files": len(os.listdir("/proc/self/fd")),
        "environment": dict(os.environ),
        "exit handlers": atexit._ncallbacks(),
        "signal handlers": [str(signal.getsignal(number)) for number in signal.valid_signals()],
        "log handlers": len(logging.getLogger().handlers),
        "warning filters": [str(each) for each in warnings.filters],
        "hooks": [str(each) for each in (sys.excepthook, threading.excepthook)],
        "import hooks": [str(each) for each in (*sys.meta_path, *sys.path_hooks)],
        "search path": sys.path,
        "locale": locale.setlocale(locale.LC_ALL),
        "working directory": os.getcwd(),
        "settings of numba": {
            name: str(value) for name, value in vars(numba.config).items() if name.isupper()
        },
        "settings of numpy": [numpy.geterr(), str(numpy.get_printoptions())],
        "settings of pyarrow": [
            pyarrow.default_memory_pool().backend_name, pyarrow.cpu_count(), pyarrow.io_thread_count()
        ],
        "recursion limit": sys.getrecursionlimit(),
    }

before = snapshot()
with event.install_recorder("numba:compile") as compiled:
    import adjoin
after = snapshot()
unwanted = {"pyspark", "pandas", "duckdb"} & {name.partition(".")[0] for name in sys.modules}
changed = {name: [before[name], after[name]] for name in before if before[name] != after[name]}
print(json.dumps({"changed": changed, "compiled": len(compiled.buffer), "imported": sorted(unwanted)}))
"""

MAPPED_AGAIN = """
import ctypes, sys
libc = ctypes.CDLL(None)
libc.malloc.argtypes, libc.malloc.restype = (ctypes.c_size_t,), ctypes.c_void_p
libc.free.argtypes = (ctypes.c_void_p,)

class Statistics(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd",
        "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
    )]

libc.mallinfo2.restype = Statistics

def is_mapped():
    before = libc.mallinfo2().hblks
    block = libc.malloc(24 << 20)
    mapped = libc.mallinfo2().hblks > before
    libc.free(block)
    return mapped

import adjoin
if sys.argv[1] == "told":
    assert adjoin.return_freed_memory()
is_mapped()  # glibc counts a buffer of this size as small from now on, unless it is told not to
sys.exit(is_mapped())
"""


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False
    )


def test_importing_adjoin_changes_nothing_else_in_the_process():
    """No threads, files, environment variables, handlers, settings, compiled kernels or optional packages."""
    ended = run(SNAPSHOT)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == {"changed": {}, "compiled": 0, "imported": []}


@pytest.mark.parametrize(("told", "is_mapped"), [("not told", 0), ("told", 1)])
def test_large_buffers_return_to_the_system_only_when_asked(told, is_mapped):
    if not hasattr(ctypes.CDLL(None), "mallinfo2"):
        pytest.skip("the C library is not glibc 2.33 or newer")
    ended = run(MAPPED_AGAIN, told)
    assert ended.returncode == is_mapped, ended.stderr
