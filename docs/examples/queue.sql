-- Keep a copy of the newest state of every row, in psql: each item is applied and acknowledged in one statement, so
-- that its effect is there exactly once. Ctrl-C ends it.
select pipeline.create_consumer('copy', tables => '{public.*}', start => 'beginning')
where not exists (select from pipeline.consumers where name = 'copy') \g /dev/null

create table if not exists rows_copied (source_table_name text, record_pk text, record jsonb,
    primary key (source_table_name, record_pk));

with items as materialized (
    select * from pipeline.receive('copy', 100)
), deleted as (
    delete from rows_copied c using items i
    where i.action = 'delete' and (c.source_table_name, c.record_pk) = (i.source_table_name, i.record_pk)
), written as (
    insert into rows_copied
    select source_table_name, record_pk, record from items where action in ('insert', 'update', 'read')
    on conflict (source_table_name, record_pk) do update set record = excluded.record
)
select count(*) as items, pipeline.ack('copy', array_agg(ack_id)) as acknowledged from items \watch 1
