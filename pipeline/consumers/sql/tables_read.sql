-- The events tables beside the default one that consumers read, and that exist.
select distinct events_table from pipeline.consumers
where events_table is not null and to_regclass(pipeline.events_relation(events_table)) is not null
order by events_table
