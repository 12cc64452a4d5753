"""Tells the master layer how to use Spark, which is not imported before it is needed."""

import sys
from collections.abc import Sequence
from typing import Any

from adjoin.master.apply import ApplyOptions, Base
from adjoin.master.backends import Backend
from adjoin.master.build import BuildOptions
from adjoin.master.page_moves import Mover
from adjoin.master.progress import Progress
from adjoin.master.versions import Home


class SparkBackend(Backend):
    """Builds and changes masters from DataFrames, of classic Spark and of Connect."""

    def accepts(self, source: Any) -> bool:
        """Whether this is a Spark DataFrame."""
        return any(
            kind.__name__ == "DataFrame" and kind.__module__.startswith("pyspark.sql")
            for kind in type(source).__mro__
        )

    def build(
        self, source: Any, key: str | Sequence[str], home: Home, options: BuildOptions, progress: Progress
    ) -> None:
        """Build on executors; Spark shows the progress itself."""
        from adjoin.spark.build import build  # noqa: PLC0415 (Spark may not be installed)

        progress.close()
        build(source, key, home, options)

    def apply(self, home: Home, base: Base, changes: Any, options: ApplyOptions) -> int | None:
        """Apply on executors, unless there are few changes."""
        from adjoin.spark.apply import apply  # noqa: PLC0415 (Spark may not be installed)

        return apply(home, base, changes, options)

    def mover(self, page_bytes: int) -> Mover | None:
        """Executors, if there is a session and enough to move."""
        if "pyspark.sql" not in sys.modules:
            return None
        from adjoin.spark.page_moves import mover_of_active_session  # noqa: PLC0415 (as above)

        return mover_of_active_session(page_bytes)
