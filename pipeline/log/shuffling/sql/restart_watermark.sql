-- A new epoch begins; none of its transactions is moved yet.
insert into pipeline.shuffle_progress (source_id, epoch) values (%(source)s, %(epoch)s)
on conflict (source_id) do update
set epoch = excluded.epoch, commit_lsn = 0, committed_at = null, updated_at = clock_timestamp()
