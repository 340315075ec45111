-- Store that a table is no longer captured. If an older server began to capture it, nothing else is known of it.
with known as (
    update pipeline.captured_tables set left_at = now(), left_lsn = %(lsn)s, left_epoch = %(epoch)s
    where source_id = %(source)s and table_oid = %(oid)s and left_at is null
    returning id
)
insert into pipeline.captured_tables
    (source_id, epoch, table_oid, table_name, joined_lsn, was_empty, left_at, left_lsn, left_epoch)
select %(source)s, %(epoch)s, %(oid)s, %(name)s, 0, true, now(), %(lsn)s, %(epoch)s
where not exists (select from known)
