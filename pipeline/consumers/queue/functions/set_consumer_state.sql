-- Pause or resume a consumer.
create or replace function pipeline.set_consumer_state(consumer text, state text) returns pipeline.consumers
language plpgsql set search_path = ''
as $$
#variable_conflict use_column
declare
    changed pipeline.consumers := pipeline.consumer_of(consumer);
begin
    update pipeline.consumers c set state = set_consumer_state.state, updated_at = clock_timestamp()
    where c.id = changed.id
    returning c.* into changed;
    perform pipeline.wake_consumer(changed.name);
    return changed;
end $$;
revoke execute on function pipeline.set_consumer_state(consumer text, state text) from public;
