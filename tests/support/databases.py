"""Databases for the tests of the cache. They count the queries themselves: a real MariaDB or MySQL, and SQLite.

``price`` has the article A1 at 100 cents. A query for it takes ``query`` seconds.
"""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pymysql
import pytest

QUERY = 0.2
"""Seconds: long enough for a crowd to come while it runs."""

PLACES = "/usr/sbin:/usr/local/sbin:/usr/libexec"
"""Directories of servers that are not on the PATH."""


class Sqlite:
    """A file. Each query is counted in the same statement."""

    def __init__(self, path: str, query: float = QUERY) -> None:
        self.path, self.query = path, query

    def set_up(self) -> None:
        with closing(self._connect()) as connection:
            connection.execute("CREATE TABLE price (sku TEXT PRIMARY KEY, cents INTEGER, asked INTEGER DEFAULT 0)")
            connection.execute("INSERT INTO price (sku, cents) VALUES ('A1', 100)")

    def cents(self, sku: str = "A1") -> int:
        """The query."""
        with closing(self._connect()) as connection:
            found = connection.execute("UPDATE price SET asked = asked + 1 WHERE sku = ? RETURNING cents", (sku,)).fetchone()
        time.sleep(self.query)
        return int(found[0])

    def change(self, cents: int) -> None:
        with closing(self._connect()) as connection:
            connection.execute("UPDATE price SET cents = ?", (cents,))

    def asked(self) -> int:
        """Queries so far, as the database says."""
        with closing(self._connect()) as connection:
            return int(connection.execute("SELECT sum(asked) FROM price").fetchone()[0])

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=30, isolation_level=None)
        connection.execute("PRAGMA synchronous = OFF")
        return connection


class MariaDB:
    """A server, by its socket."""

    def __init__(self, path: str, query: float = QUERY) -> None:
        self.path, self.query = path, query

    def set_up(self) -> None:
        with closing(self._connect("")) as connection, connection.cursor() as cursor:
            cursor.execute("CREATE DATABASE shop")
            cursor.execute("CREATE TABLE shop.price (sku VARCHAR(20) PRIMARY KEY, cents INTEGER)")
            cursor.execute("INSERT INTO shop.price VALUES ('A1', 100)")

    def cents(self, sku: str = "A1") -> int:
        """The query."""
        with closing(self._connect()) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT cents, SLEEP(%s) FROM price WHERE sku = %s", (self.query, sku))
            return int(cursor.fetchall()[0][0])

    def change(self, cents: int) -> None:
        with closing(self._connect()) as connection, connection.cursor() as cursor:
            cursor.execute("UPDATE price SET cents = %s", (cents,))

    def asked(self) -> int:
        """SELECTs so far, as the server counts them."""
        with closing(self._connect()) as connection, connection.cursor() as cursor:
            cursor.execute("SHOW GLOBAL STATUS LIKE 'Com_select'")
            return int(cursor.fetchall()[0][1])

    def _connect(self, database: str = "shop") -> Any:
        connect: Any = pymysql.connect
        return connect(unix_socket=self.path, user="root", database=database or None, autocommit=True)


Database = MariaDB | Sqlite

DATABASES: dict[str, Callable[[str, float], Database]] = {"MariaDB": MariaDB, "Sqlite": Sqlite}
"""By the names of their types."""


@contextmanager
def mariadb(directory: Path) -> Iterator[MariaDB]:
    """A server of one's own, on a unix socket. Skips the test, and says why, where there is no such program."""
    program = next(filter(None, (shutil.which(name, path=PLACES) or shutil.which(name) for name in ("mariadbd", "mysqld"))), "")
    if not program:
        pytest.skip("no mariadbd or mysqld here: apt-get install mariadb-server-core")
    data, log = directory / "data", directory / "log"
    common = [program, "--no-defaults", f"--datadir={data}", "--user=root"]
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    if "MariaDB" in version:
        data.mkdir()
    else:
        subprocess.run([*common, "--initialize-insecure"], check=True, capture_output=True, timeout=60)
    database = MariaDB(str(directory / "s"))
    options = ["--skip-networking", "--skip-grant-tables", "--max-connections=500", "--innodb-buffer-pool-size=8M"]
    with log.open("wb") as output:
        server = subprocess.Popen(
            [*common, f"--socket={database.path}", f"--pid-file={directory / 'pid'}", *options], stdout=output, stderr=output
        )
    try:
        deadline = time.monotonic() + 30
        while "ready for connections" not in log.read_text():
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.01)
        database.set_up()
        yield database
    finally:
        server.kill()
        server.wait()
