-- The transactions that no snapshot of now contains, though they have begun: the lower halves of their xids.
select x::pg_catalog.text::pg_catalog.int8 & 4294967295
from pg_catalog.pg_snapshot_xip(pg_catalog.pg_current_snapshot()) x
