-- How long a delivery of this consumer is its receiver's, where the receiver says nothing else.
create or replace function pipeline.visibility_of(consumer text) returns interval
language sql stable security definer set search_path = ''
as $$
    select (pipeline.consumer_of(visibility_of.consumer, 'records')).visibility
$$;
revoke execute on function pipeline.visibility_of(consumer text) from public;
