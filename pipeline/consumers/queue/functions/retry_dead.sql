-- Put dead letters back into the queue.
create or replace function pipeline.retry_dead(consumer text, seqs bigint[] default null) returns integer
language plpgsql security definer set search_path = ''
as $$
declare
    me pipeline.consumers := pipeline.consumer_of(consumer, 'records');
    retried integer;
begin
    if me.collapse then
        update public.consumer_records r set state = 'available', deliveries = 0, unkeyed = abs(r.unkeyed)
        where r.consumer_id = me.id and r.state = 'dead' and (retry_dead.seqs is null or r.seq = any (retry_dead.seqs));
        get diagnostics retried = row_count;
    else
        retried := pipeline.retry_in_line(me, seqs);
    end if;
    if retried > 0 then
        perform pipeline.wake_consumer(me.name);
    end if;
    return retried;
end $$;
revoke execute on function pipeline.retry_dead(consumer text, seqs bigint[]) from public;
