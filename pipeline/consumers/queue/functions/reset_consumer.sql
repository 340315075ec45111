-- Make a consumer start again at another place in the log.
create or replace function pipeline.reset_consumer(name text, start text default 'beginning') returns pipeline.consumers
language plpgsql security definer set search_path = ''
as $$
#variable_conflict use_column
declare
    changed pipeline.consumers := pipeline.consumer_of(reset_consumer.name);
begin
    perform pipeline.require_events_table(changed);
    -- Lock the consumer until the transaction ends, so that the shuffler skips it.
    perform from pipeline.consumer_progress p where p.consumer_id = pipeline.progress_id(changed) for update;
    delete from public.consumer_records r where r.consumer_id = changed.id;
    delete from pipeline.consumer_touches t where t.consumer_id = changed.id;
    update pipeline.consumers c
    set position = pipeline.start_seq(start, c.events_table), reader = null, reader_session = null, reader_since = null,
        updated_at = clock_timestamp()
    where c.id = changed.id
    returning c.* into changed;
    update pipeline.consumer_progress p set folded_seq = changed.position
    where p.consumer_id = pipeline.progress_id(changed);
    delete from pipeline.walstream_sessions where changed.name = 'walstream';  -- no hold from before the reset remains
    perform pipeline.wake_consumer(changed.name);
    return changed;
end $$;
revoke execute on function pipeline.reset_consumer(name text, start text) from public;
