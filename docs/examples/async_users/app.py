"""Users over HTTP: `POST /async-users` inserts one at the source, and every follower has it a moment later."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI, Request
from psycopg_pool import AsyncConnectionPool
from pydantic import BaseModel


class User(BaseModel):
    """Who is to be added."""

    name: str
    email: str


@asynccontextmanager
async def connected(app: FastAPI) -> AsyncIterator[None]:
    """With the table, and connections to the source, which `USERS_DSN` names, while the program runs."""
    async with AsyncConnectionPool(os.environ["USERS_DSN"], min_size=4, max_size=16, open=False) as pool:
        async with pool.connection() as connection:
            await connection.execute(Path(__file__).with_name("schema.sql").read_text())
        app.state.pool = pool
        yield


app = FastAPI(title="Users", lifespan=connected)


@app.post("/async-users", status_code=201)
async def add(user: User, request: Request) -> dict[str, int]:
    """Answers once the row is committed at the source; nobody waits for a follower."""
    async with request.app.state.pool.connection() as connection:
        cursor = await connection.execute(
            "insert into users (name, email) values (%s, %s) returning id", (user.name, user.email)
        )
        [number] = await cursor.fetchone()
    return {"id": number}
