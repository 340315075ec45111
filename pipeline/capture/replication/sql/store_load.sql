-- Store what the worker has waited for; one row for each source.
insert into pipeline.worker_load (source_id, epoch, moved_lsn, starved, blocked, sending)
select s.id, s.epoch, %(moved_lsn)s, %(starved)s, %(blocked)s, %(sending)s from pipeline.sources s where s.id = %(source)s
on conflict (source_id) do update
set epoch = excluded.epoch, moved_lsn = excluded.moved_lsn, starved = excluded.starved, blocked = excluded.blocked,
    sending = excluded.sending, measured_at = excluded.measured_at
