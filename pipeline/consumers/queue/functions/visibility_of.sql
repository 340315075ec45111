-- Return how long a delivery of this consumer lasts if the receiver does not choose.
create or replace function pipeline.visibility_of(consumer text) returns interval
language sql stable security definer set search_path = ''
as $$
    select (pipeline.consumer_of(visibility_of.consumer, 'records')).visibility
$$;
revoke execute on function pipeline.visibility_of(consumer text) from public;
