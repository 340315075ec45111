-- Segments to empty.
select id from pipeline.segments where state = 'drained' order by id
