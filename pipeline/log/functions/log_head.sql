-- The newest seq.
create or replace function pipeline.log_head() returns bigint
language sql stable set search_path = ''
as $$
    select coalesce(max(seq), 0) from pipeline.events
$$;
revoke execute on function pipeline.log_head() from public;
