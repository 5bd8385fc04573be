"""A database with one account, for tests of transactions that hold a lock: a real MariaDB, or a file of SQLite."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from sqlalchemy.util import await_only

from support.databases import mariadb


class Base(DeclarativeBase):
    pass


class Account(Base):
    __tablename__ = "account"
    id: Mapped[int] = mapped_column(primary_key=True)
    balance: Mapped[int]
    fence: Mapped[int] = mapped_column(default=0)


class Blocking(SQLiteDialect_pysqlite):
    """The driver of SQLite as one for asyncio: whatever is above it is real."""

    driver = "blocking"
    is_async = True
    supports_statement_cache = True

    def connect(self, *args: Any, **kwargs: Any) -> Any:
        await_only(asyncio.sleep(0))
        return super().connect(*args, **kwargs)

    def do_execute(self, *args: Any, **kwargs: Any) -> Any:
        await_only(asyncio.sleep(0))
        return super().do_execute(*args, **kwargs)  # type: ignore[no-untyped-call]

    def do_commit(self, *args: Any) -> None:
        await_only(asyncio.sleep(0))
        super().do_commit(*args)  # type: ignore[no-untyped-call]


registry.register("sqlite.blocking", __name__, "Blocking")


class Bank:
    """The account 1, with 100."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.engine: Engine = create_engine(url)
        if url.startswith("sqlite"):
            _begin_at_the_start(self.engine)
        Base.metadata.create_all(self.engine)
        with Session(self.engine) as session, session.begin():
            session.add(Account(id=1, balance=100, fence=0))

    def balance(self) -> int:
        """As it is committed."""
        with Session(self.engine) as session:
            return session.get_one(Account, 1).balance

    def set(self, balance: int) -> None:
        with Session(self.engine) as session, session.begin():
            session.get_one(Account, 1).balance = balance


def _begin_at_the_start(engine: Engine) -> None:
    """As SQLAlchemy's page on SQLite says: Python's module would begin a transaction at its first write, and savepoints would
    not work."""

    @event.listens_for(engine, "connect")
    def leave_it_to_us(connection: Any, _record: object) -> None:
        connection.isolation_level = None

    @event.listens_for(engine, "begin")
    def begin(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN")


@contextmanager
def bank(kind: str, directory: Path) -> Iterator[Bank]:
    if kind == "sqlite":
        found = Bank(f"sqlite:///{directory / 'bank.db'}")
        try:
            yield found
        finally:
            found.engine.dispose()
        return
    with mariadb(directory) as running:
        found = Bank(f"mysql+pymysql://root@/shop?unix_socket={running.path}")
        try:
            yield found
        finally:
            found.engine.dispose()
