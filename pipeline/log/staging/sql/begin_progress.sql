-- Store the first position of a source: the one of its new slot. Never waits for a writer that has locked the row, which
-- then exists.
insert into pipeline.replication_progress (source_id, worker, epoch, position)
select %(source)s::uuid, %(worker)s::integer, %(epoch)s::integer, %(position)s::bigint
where not exists (
    select from pipeline.replication_progress where source_id = %(source)s::uuid and worker = %(worker)s::integer)
on conflict do nothing
