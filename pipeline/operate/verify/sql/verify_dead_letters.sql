-- Dead letters of a source that were written to this table when they were retried, up to a seq.
select count(*) as retried from pipeline.dead_letters
where source_id = %(source)s and state = 'retried' and events_table = %(table)s and retried_seq <= %(head)s
