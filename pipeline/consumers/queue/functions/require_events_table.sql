-- Refuse to read for a consumer whose events table no longer exists.
create or replace function pipeline.require_events_table(reader pipeline.consumers) returns void
language plpgsql stable set search_path = ''
as $$
begin
    if to_regclass(pipeline.events_relation(reader.events_table)) is null then
        raise numeric_value_out_of_range using
            message = format('consumer %L reads %s, which no longer exists', reader.name, reader.events_table),
            hint = 'Restore the table, or drop the consumer: `pipeline consumers delete ' || reader.name || '`.';
    end if;
end $$;
revoke execute on function pipeline.require_events_table(reader pipeline.consumers) from public;
