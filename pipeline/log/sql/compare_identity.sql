-- Compare the place where the log is with the one where it was last written; null if nothing is stored yet. Values that a
-- provider does not show count as equal. The row stays locked until the end of the transaction, which a standby refuses.
select case when i.table_oid is not null then array_remove(array[
        case when i.system_identifier <> h.system_identifier then 'the pipeline database is in another cluster' end,
        case when i.timeline <> h.timeline
            then format('the cluster of the pipeline database went from timeline %s to %s', i.timeline, h.timeline) end,
        case when i.database_oid <> h.database_oid then 'the pipeline database is a copy of another one' end,
        case when i.table_oid <> h.table_oid then 'the pipeline database was restored from a dump'
            when i.written_by <> i.xmin then 'the data of the pipeline database was restored' end
    ], null) end
from pipeline.identity i cross join pipeline.log_place() h
for update of i
