-- Wake clients that wait for items of this consumer.
create or replace function pipeline.wake_consumer(consumer text) returns void
language sql set search_path = ''
as $$
    select pg_notify('pipeline_consumers', consumer)
$$;
revoke execute on function pipeline.wake_consumer(consumer text) from public;
