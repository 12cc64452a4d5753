"""The end of a driver that does not stop its session."""

import atexit
from contextlib import suppress
from functools import cache
from typing import Any

from pyspark import SparkContext

_LISTENER_BUS = "org.apache.spark.sql.execution.streaming.runtime.StreamingQueryListenerBus"


@cache
def quiet_listeners_at_exit() -> None:
    """When this process ends and its session is not stopped, let Spark not complain that listeners are gone.

    Java goes on for a moment, and cannot know that they end with Python. Hosts see that the driver has ended.
    """
    atexit.register(_quiet_listeners)


def _quiet_listeners() -> None:
    with suppress(Exception):  # there may be no Java, or none any more
        java: Any = SparkContext._jvm
        configurator = java.org.apache.logging.log4j.core.config.Configurator
        configurator.setLevel(_LISTENER_BUS, java.org.apache.logging.log4j.Level.OFF)
