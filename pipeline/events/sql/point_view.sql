-- The view of the log shows this table.
create or replace view pipeline.events as select * from {table}
