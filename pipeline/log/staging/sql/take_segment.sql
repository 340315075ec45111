-- Assign an empty segment to a worker; no row if no segment is free.
update pipeline.segments set state = 'filling', source_id = %(source)s, worker = %(worker)s
where id = (select id from pipeline.segments where state = 'free' order by id limit 1 for update skip locked)
returning id
