-- Delete dead letters.
create or replace function pipeline.discard_dead(consumer text, seqs bigint[] default null) returns integer
language plpgsql security definer set search_path = ''
as $$
declare
    me pipeline.consumers := pipeline.consumer_of(consumer, 'records');
    discarded integer;
begin
    delete from public.consumer_records r
    where r.consumer_id = me.id and r.state = 'dead'
        and (discard_dead.seqs is null or r.seq = any (discard_dead.seqs));
    get diagnostics discarded = row_count;
    return discarded;
end $$;
revoke execute on function pipeline.discard_dead(consumer text, seqs bigint[]) from public;
