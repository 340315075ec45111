-- Lock dead letters to write again, in the order of the log.
select id, epoch, events_table from pipeline.dead_letters
where source_id = %(source)s and state = 'retrying'
order by epoch, commit_lsn, commit_idx
limit %(limit)s
for update skip locked
