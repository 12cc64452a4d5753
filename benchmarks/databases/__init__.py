"""Index joins of database systems: PostgreSQL and MariaDB, where available."""
