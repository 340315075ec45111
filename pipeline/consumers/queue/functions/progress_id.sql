-- Return the id of a consumer in pipeline.consumer_progress. It hides consumers from servers of earlier versions, which
-- would serve them wrongly: negative if the consumer does not collapse, and beyond all ids if it reads another events
-- table than the default one.
create or replace function pipeline.progress_id(reader pipeline.consumers) returns integer
language sql immutable parallel safe
as $$
    select case when reader.events_table is not null then 1000000000 + reader.id
        when reader.collapse then reader.id else -reader.id end
$$;
revoke execute on function pipeline.progress_id(reader pipeline.consumers) from public;
