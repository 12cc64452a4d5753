"""The systems to measure."""

from benchmarks.databases.database import Database
from benchmarks.databases.mariadb import MariaDB
from benchmarks.databases.postgresql import PostgreSQL

SYSTEMS: tuple[type[Database], ...] = (PostgreSQL, MariaDB)
