-- This seq, unless the events table has skipped it by jumping: then that of the event before the jump. For anybody who may
-- use the schema: it tells nothing of any event.
create or replace function pipeline.before_jump(events_table text, seq bigint) returns bigint
language sql stable security definer set search_path = ''
as $$
    select coalesce((
        select min(j.before) from pipeline.seq_jumps j
        where j.events_table = coalesce(before_jump.events_table, pipeline.default_events_table())
            and j.before < before_jump.seq and before_jump.seq < j.after), before_jump.seq)
$$;

comment on function pipeline.before_jump(text, bigint) is
    'This seq; or if an events table (null: the default one) has skipped it by a jump, the newest seq before the jump.';
