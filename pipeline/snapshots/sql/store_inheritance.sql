-- Store that tables inherit, or no longer do. `first`: the first time, so they may always have done so.
insert into pipeline.inheritance (source_id, epoch, child_oid, parent_oid, inherits, seen_lsn, seen_at)
select %(source)s, %(epoch)s, child, parent, %(inherits)s, %(lsn)s, case when not %(first)s then clock_timestamp() end
from unnest(%(children)s::bigint[], %(parents)s::bigint[]) e (child, parent)
