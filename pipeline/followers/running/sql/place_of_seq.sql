-- The place of the last event of a source up to a seq.
select e.source_epoch, e.commit_lsn, e.committed_at from pipeline.events e
where e.seq <= %(seq)s and e.source_database_id = %(source)s
order by e.seq desc limit 1
