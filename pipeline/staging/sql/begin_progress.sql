-- The first position of a source: where its slot was made.
insert into pipeline.replication_progress (source_id, worker, epoch, position)
values (%(source)s, %(worker)s, %(epoch)s, %(position)s)
on conflict do nothing
