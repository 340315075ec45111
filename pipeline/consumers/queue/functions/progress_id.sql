-- The id of a consumer in pipeline.consumer_progress, by which servers of versions before do not find what they would
-- serve wrongly: negative where it does not collapse, and beyond all ids where it reads another events table.
create or replace function pipeline.progress_id(reader pipeline.consumers) returns integer
language sql immutable parallel safe
as $$
    select case when reader.events_table is not null then 1000000000 + reader.id
        when reader.collapse then reader.id else -reader.id end
$$;
revoke execute on function pipeline.progress_id(reader pipeline.consumers) from public;
