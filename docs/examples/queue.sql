-- Keep a copy of the newest state of every row, in psql: each item is applied and acknowledged in one statement, so
-- that its effect is there exactly once. Ctrl-C ends it.
select pipeline.create_consumer('copy', tables => '{public.*}', start => 'beginning')
where not exists (select from pipeline.consumers where name = 'copy') \g /dev/null

create table if not exists rows_copied (source_table_name text, record_pk text, record jsonb,
    primary key (source_table_name, record_pk));
-- Rows without a key cannot be told apart, so there is no copy of them: each of their changes is kept, in order of seq.
create table if not exists changes_without_key (seq bigint, source_table_name text, action text, record jsonb);

with items as materialized (
    select * from pipeline.receive('copy', 100)
), deleted as (
    delete from rows_copied c using items i
    where i.action = 'delete' and (c.source_table_name, c.record_pk) = (i.source_table_name, i.record_pk)
        or i.action = 'truncate' and c.source_table_name = i.source_table_name
), written as (
    insert into rows_copied
    select source_table_name, record_pk, record from items
    where action in ('insert', 'update', 'read') and record_pk <> ''
    on conflict (source_table_name, record_pk) do update set record = excluded.record
), kept as (
    insert into changes_without_key
    select seq, source_table_name, action, record from items where record_pk = ''
)
select count(*) as items, pipeline.ack('copy', array_agg(ack_id)) as acknowledged from items \watch 1
