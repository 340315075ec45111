-- Drop a consumer, with its unacknowledged items.
create or replace function pipeline.drop_consumer(name text) returns pipeline.consumers
language plpgsql security definer set search_path = ''
as $$
declare
    gone pipeline.consumers;
begin
    select * into gone from pipeline.consumers c where c.name = drop_consumer.name;
    delete from pipeline.consumer_progress p where p.consumer_id in (gone.id, -gone.id, 1000000000 + gone.id);  -- see progress_id
    delete from public.consumer_records r where r.consumer_id = gone.id;
    delete from pipeline.consumer_touches t where t.consumer_id = gone.id;
    delete from pipeline.consumers c where c.id = gone.id;
    if not found then  -- or another session has dropped it by now
        raise undefined_object using message = format('there is no consumer %L', drop_consumer.name),
            hint = 'See all: select name from pipeline.consumers.';
    end if;
    delete from pipeline.walstream_sessions where gone.name = 'walstream';  -- no hold of the dropped consumer remains
    perform pipeline.wake_consumer(gone.name);
    return gone;
end $$;
revoke execute on function pipeline.drop_consumer(name text) from public;
