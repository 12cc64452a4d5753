"""Index joins of database systems: PostgreSQL and MariaDB, where they can be had."""
