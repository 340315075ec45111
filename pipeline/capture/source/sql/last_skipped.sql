-- The newest skipped transaction of the current epoch.
select max(s.commit_lsn) from pipeline.source_stops s
join pipeline.replication_progress p on p.source_id = s.source_id and p.worker = 0 and p.epoch = s.epoch
where s.source_id = %(source)s and s.skipped_at is not null
