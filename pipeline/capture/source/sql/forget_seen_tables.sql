-- Forget tables that were dropped long ago, and epochs before the last one.
delete from pipeline.seen_tables
where source_id = %(source)s and (
    epoch < %(epoch)s - 1
    or epoch = %(epoch)s and table_oid <> 0 and table_oid <> all (%(existing)s::bigint[])
        and first_seen_at < now() - make_interval(days => %(days)s)
)
