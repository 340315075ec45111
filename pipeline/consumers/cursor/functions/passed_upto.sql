-- Return the seq up to which a cursor of an events table has read all events that its filter matches. Other events
-- among the next 20,000 seqs count as read. For the default table, `pipeline.readers` has its own statement.
create or replace function pipeline.passed_upto(reader pipeline.consumers) returns bigint
language plpgsql stable set search_path = ''
as $$
declare
    upto bigint;
begin
    if to_regclass(pipeline.events_relation(reader.events_table)) is null then
        return reader.position;
    end if;
    execute format($query$
        select coalesce((
            select e.seq - 1 from %1$s e
            where e.seq > $1 and e.seq < $1 + 20000
                and pipeline.matches($2, e.source_table_schema, e.source_table_name)
                and (cardinality($3) = 0 or e.action = any ($3))
            order by e.seq limit 1
        ), greatest($1, pipeline.before_jump($4,
            least($1 + 19999, (select e.seq from %1$s e order by e.seq desc limit 1)))))$query$,
        pipeline.events_relation(reader.events_table))
    into upto using reader.position, reader.tables, reader.actions, reader.events_table;
    return upto;
end $$;
revoke execute on function pipeline.passed_upto(reader pipeline.consumers) from public;
