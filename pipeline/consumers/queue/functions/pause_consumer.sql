-- Deliver nothing until the consumer is resumed.
create or replace function pipeline.pause_consumer(name text) returns pipeline.consumers
language sql security definer set search_path = ''
as $$
    select pipeline.set_consumer_state(name, 'paused')
$$;
revoke execute on function pipeline.pause_consumer(name text) from public;
