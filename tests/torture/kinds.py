"""All kinds of cases, with the share of the time each gets."""

from hashlib import blake2b

from tests.torture import damage, disks, fuzz, kills, races, spark_kills
from tests.torture.campaign import ROOT
from tests.torture.cases import Kind, simple


def _checked() -> dict[str, str]:
    """Kernels that raise an IndexError instead of leaving an array; compiling them takes a while, once.

    Numba does not notice changes in a kernel called from another file: other sources, other folder.
    """
    sources = sorted((ROOT / "src" / "adjoin" / "kernels").glob("*.py"))
    digest = blake2b(b"".join(path.read_bytes() for path in sources), digest_size=8).hexdigest()
    return {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(ROOT / "build" / "checked-kernels" / digest)}


KINDS = {
    kind.name: kind
    for kind in (
        Kind("kills/process", 0.16, simple(kills.in_process)),
        Kind("kills/spark local", 0.16, spark_kills.on_local, seconds=900.0),
        Kind("kills/spark cluster", 0.16, spark_kills.on_cluster, seconds=900.0),
        Kind("damage/files", 0.18, damage.files_of_masters),
        Kind("damage/page memory", 0.07, damage.page_memory),
        Kind("damage/snapshots", 0.03, simple(damage.snapshots)),
        Kind("damage/bounds checked", 0.1, damage.everything, _checked(), seconds=600.0),
        Kind("disks", 0.14, disks.opened),
        Kind("fuzz/parsers", 0.08, fuzz.parsers),
        Kind("fuzz/pages", 0.1, fuzz.pages),
        Kind("fuzz/operators", 0.06, simple(fuzz.semi_stream)),
        Kind("fuzz/stream joins", 0.04, simple(fuzz.streams)),
        Kind("fuzz/changes", 0.05, fuzz.changes),
        Kind("fuzz/options", 0.02, fuzz.options),
        Kind("races", 0.08, races.opened),
    )
}
