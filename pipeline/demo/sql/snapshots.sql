-- How far the rows from before are: all that were read, and tables that are not whole yet.
select coalesce(sum(s.rows), 0)::bigint, count(*) filter (where s.complete_seq is not null)
from pipeline.snapshots s where s.table_oid = any(%(tables)s)
