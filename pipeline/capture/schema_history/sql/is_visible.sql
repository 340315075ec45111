-- True if the changes of a transaction are visible to other sessions, given the lower half of its xid.
with now as (
    select pg_catalog.pg_current_snapshot() as snapshot,
        pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::text::numeric as next
), given as (
    select snapshot, next, trunc(next / 4294967296) * 4294967296 + %(xid)s::bigint as full_xid from now
)
select pg_catalog.pg_visible_in_snapshot(
    (case when full_xid > next + 2147483648 then full_xid - 4294967296
        when full_xid < next - 2147483648 then full_xid + 4294967296
        else full_xid end)::text::xid8, snapshot)
from given
