-- Store tables that are seen for the first time; `old`: they existed before the slot, or before the epoch.
insert into pipeline.seen_tables (source_id, epoch, table_oid, first_seen_at)
select %(source)s, %(epoch)s, oid, case when not %(old)s then clock_timestamp() end
from unnest(%(oids)s::bigint[]) oid
on conflict do nothing
