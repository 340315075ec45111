-- Read what one host of the source says about a failover: as a standby, and of the copy of our slot. Settings are null
-- before Postgres 17, and primary_conninfo also without the rights of pg_read_all_settings.
select pg_catalog.pg_is_in_recovery() as standby,
    (select c.system_identifier from pg_catalog.pg_control_system() c)::text as cluster,
    pg_catalog.pg_postmaster_start_time()::text as started,
    current_setting('sync_replication_slots', true)::boolean as syncs,
    current_setting('hot_standby_feedback')::boolean as feedback,
    current_setting('primary_slot_name') <> '' as has_physical_slot,
    (select p.setting from pg_catalog.pg_settings p where p.name = 'primary_conninfo') as conninfo,
    s.slot_name is not null as has_slot,
    (to_jsonb(s) ->> 'failover')::boolean as failover,
    (to_jsonb(s) ->> 'synced')::boolean as synced,
    coalesce(s.temporary, false) as temporary,
    coalesce(s.wal_status = 'lost' or to_jsonb(s) ->> 'invalidation_reason' is not null, false) as lost
from (select) as one_row
left join pg_catalog.pg_replication_slots s on s.slot_name = %(slot)s::text
