-- Who may call the functions, and how their statements are planned.
-- The functions run with their owner's rights, so nobody may call them before it was granted.
do $$ declare made regprocedure; begin
    for made in
        select p.oid from pg_proc p
        where p.pronamespace = 'pipeline'::regnamespace and p.proname in (
            'matches', 'consumer_of', 'log_head', 'log_floor', 'start_seq', 'wake_consumer', 'bury', 'release_expired',
            'check_consumer', 'create_consumer', 'drop_consumer', 'set_consumer_state', 'pause_consumer',
            'resume_consumer', 'reset_consumer', 'hand_out', 'receive', 'next_visible', 'ack', 'nack', 'extend',
            'advance', 'dead_records', 'retry_dead', 'discard_dead')
    loop
        execute 'revoke execute on function ' || made || ' from public';
    end loop;
end $$;

-- Statistics of a queue are always out of date: items are read in its order, and found by their keys, whatever they say.
-- What is off has a cost that would make Postgres 15 to 17 compile plans, which takes longer than to run them.
do $$ declare
    made regprocedure;
    setting text;
begin
    for made, setting in
        select p.oid, s from pg_proc p cross join unnest(array['jit', 'enable_seqscan', 'enable_bitmapscan',
            'enable_hashjoin', 'enable_mergejoin', 'enable_material', 'enable_sort']) s
        where p.pronamespace = 'pipeline'::regnamespace
            and p.proname in ('receive', 'next_visible', 'ack', 'nack', 'extend')
    loop
        execute 'alter function ' || made || ' set ' || setting || ' to off';
    end loop;
end $$;
