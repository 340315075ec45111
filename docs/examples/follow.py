"""Count the changes of each table. Counts and position move in one transaction, so every change counts exactly once."""

import os

import psycopg

from pipeline.client import EventLog

with psycopg.connect(os.environ["MY_DSN"], autocommit=True) as mine:
    mine.execute("create table if not exists change_counts (table_name text primary key, changes bigint not null)")
    mine.execute("create table if not exists my_position (seq bigint not null)")
    row = mine.execute("select seq from my_position").fetchone()
    if row is None:
        row = mine.execute("insert into my_position values (0) returning seq").fetchone()

    for event in EventLog(os.environ["PIPELINE_DATABASE_DSN"]).follow(after=row[0]):
        with mine.transaction():
            mine.execute(
                "insert into change_counts values (%s, 1)"
                " on conflict (table_name) do update set changes = change_counts.changes + 1",
                [event.source_table_name],
            )
            mine.execute("update my_position set seq = %s", [event.seq])
