-- Return the consumer of that name. Raises an error if there is none, or if it is of another kind.
create or replace function pipeline.consumer_of(consumer text, kind text default null) returns pipeline.consumers
language plpgsql stable set search_path = ''
as $$
#variable_conflict use_column
declare
    found_one pipeline.consumers;
begin
    select * into found_one from pipeline.consumers c where c.name = consumer_of.consumer;
    if not found then
        raise undefined_object using message = format('there is no consumer %L', consumer),
            hint = 'Create it: select pipeline.create_consumer(name).';
    end if;
    if found_one.kind <> consumer_of.kind then
        raise wrong_object_type using message = format('consumer %L is of kind %s; this is for kind %s',
            consumer, found_one.kind, consumer_of.kind);
    end if;
    return found_one;
end $$;
revoke execute on function pipeline.consumer_of(consumer text, kind text) from public;
