-- A new backfill; no row when one of the table is under way.
insert into pipeline.backfills (source_id, epoch, table_oid, table_schema, table_name, kind, condition)
values (%(source)s, %(epoch)s, %(oid)s, %(schema)s, %(name)s, %(kind)s, %(condition)s)
on conflict (source_id, table_oid) where state in ('waiting', 'reading', 'paused') do nothing
returning id
