"""Count the changes of each table with a Spark stream. Counts and position move in one transaction.

Spark may apply a batch again after a crash; the program skips what it has counted, so each change counts exactly once.
`python spark_counts.py CHECKPOINT` follows the log; with `once` as a second argument, it ends at the log's end.
"""

from __future__ import annotations

import os
import sys

import psycopg
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

MINE = os.environ["MY_DSN"]


def apply(batch: DataFrame, _: int) -> None:
    with psycopg.connect(MINE) as mine:  # one transaction, committed at the end of the block
        [(position,)] = mine.execute("select seq from spark_position for update").fetchall()
        new = batch.where(batch.seq > position).groupBy("source_table_name").agg(f.count("*"), f.max("seq"))
        for table, changes, seq in new.collect():
            mine.execute(
                "insert into spark_counts values (%s, %s)"
                " on conflict (table_name) do update set changes = spark_counts.changes + excluded.changes",
                [table, changes],
            )
            mine.execute("update spark_position set seq = greatest(seq, %s)", [seq])


with psycopg.connect(MINE, autocommit=True) as mine:
    mine.execute("create table if not exists spark_counts (table_name text primary key, changes bigint not null)")
    mine.execute("create table if not exists spark_position (seq bigint not null)")
    mine.execute("insert into spark_position select 0 where not exists (select from spark_position)")

spark = SparkSession.builder.appName("counts").config("spark.sql.shuffle.partitions", 2).getOrCreate()
log = spark.readStream.format("sequin_events").option("consumer", "spark").option("columns", "seq, source_table_name")
writer = log.load().writeStream.foreachBatch(apply).option("checkpointLocation", sys.argv[1])
writer = writer.trigger(availableNow=True) if "once" in sys.argv else writer.trigger(processingTime="1 second")
writer.start().awaitTermination()
