-- Resume a paused consumer.
create or replace function pipeline.resume_consumer(name text) returns pipeline.consumers
language sql security definer set search_path = ''
as $$
    select pipeline.set_consumer_state(name, 'active')
$$;
revoke execute on function pipeline.resume_consumer(name text) from public;
