-- What has become of transactions: committed, aborted or in progress; null when it is too long ago to know.
select xid::text, pg_catalog.pg_xact_status(xid)
from unnest(%(xids)s::text[]::xid8[]) xid
where xid < pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())
