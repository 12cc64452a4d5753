"""A session whose state store is set up for joins of streams."""

import pytest
from pyspark.sql import SparkSession

STATE_STORE = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.boundedMemoryUsage": "true",
    "spark.sql.session.timeZone": "UTC",
}


@pytest.fixture
def stateful(spark: SparkSession) -> SparkSession:
    """The session of all tests, with RocksDB in bounded memory."""
    session = spark.newSession()
    for name, value in STATE_STORE.items():
        session.conf.set(name, value)
    return session
