-- The names of all consumers.
select c.name from pipeline.consumers c
