-- The newest seq.
create or replace function pipeline.log_head() returns bigint
language sql stable set search_path = ''
as $$
    select coalesce(max(seq), 0) from pipeline.events
$$;
revoke execute on function pipeline.log_head() from public;

-- The newest seq of an events table; 0 where it no longer exists.
create or replace function pipeline.log_head(events_table text) returns bigint
language plpgsql stable set search_path = ''
as $$
declare
    head bigint;
begin
    if events_table is null then
        return pipeline.log_head();
    elsif to_regclass(pipeline.events_relation(events_table)) is null then
        return 0;
    end if;
    execute format('select coalesce(max(seq), 0) from %s', pipeline.events_relation(events_table)) into head;
    return head;
end $$;
revoke execute on function pipeline.log_head(events_table text) from public;
