-- A table is captured from now on; nothing where that is known.
insert into pipeline.captured_tables (source_id, epoch, table_oid, table_name, joined_lsn, was_empty, root_oid)
values (%(source)s, %(epoch)s, %(oid)s, %(name)s, %(lsn)s, %(was_empty)s, %(root)s)
on conflict do nothing
