"""A quiet exit for a driver that does not stop its session."""

import atexit
from contextlib import suppress
from functools import cache
from typing import Any

from pyspark import SparkContext

_LISTENER_BUS = "org.apache.spark.sql.execution.streaming.runtime.StreamingQueryListenerBus"


@cache
def quiet_listeners_at_exit() -> None:
    """Keep Spark from complaining about dead listeners when this process ends without stopping its session.

    Java lives a moment longer and cannot know that listeners end with Python. Hosts notice the driver's end.
    """
    atexit.register(_quiet_listeners)


def _quiet_listeners() -> None:
    with suppress(Exception):  # there may be no Java, or it has ended already
        java: Any = SparkContext._jvm  # noqa: SLF001 (no public name)
        configurator = java.org.apache.logging.log4j.core.config.Configurator
        configurator.setLevel(_LISTENER_BUS, java.org.apache.logging.log4j.Level.OFF)
