"""Keep a table equal to `public.orders` of the source: `spark-pipelines run` in this folder.

A change of key has to be a delete and an insert: by its key alone, the old row would stay.
"""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession


@dp.temporary_view
def changes() -> DataFrame:
    log = SparkSession.active().readStream.format("sequin_events").option("table", "public.orders")
    events = log.option("splitKeyChanges", "true").load()
    says_nothing = "event_metadata like '%\"outdated\"%' or event_metadata like '%\"parked\"%' and action <> 'delete'"
    return events.where(f"action <> 'truncate' and not coalesce({says_nothing}, false)")


dp.create_streaming_table("orders")
dp.create_auto_cdc_flow(
    target="orders",
    source="changes",
    keys=["id"],
    sequence_by="seq",
    apply_as_deletes="action = 'delete'",
    column_list=["id", "state"],
    stored_as_scd_type=1,
)
