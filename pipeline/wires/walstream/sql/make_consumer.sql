-- The position of walstream's clients, at the head of the log; no row where it is there already.
select (pipeline.create_consumer('walstream', 'cursor')).name
where not exists (select from pipeline.consumers where name = 'walstream')
