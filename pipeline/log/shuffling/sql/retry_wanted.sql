-- Return a row if there are dead letters to write again.
select from pipeline.dead_letters where source_id = %(source)s and state = 'retrying'
    and not exists (select from pipeline.adopting_sources a where a.source_id = %(source)s)
limit 1
