-- Whoever waits for items of this consumer looks again.
create or replace function pipeline.wake_consumer(consumer text) returns void
language sql set search_path = ''
as $$
    select pg_notify('pipeline_consumers', consumer)
$$;
revoke execute on function pipeline.wake_consumer(consumer text) from public;
