-- How many seqs there are after one and up to another, without those that the events table has skipped by jumping.
create or replace function pipeline.seqs_between(events_table text, after bigint, upto bigint) returns bigint
language sql stable set search_path = ''
as $$
    -- Two jumps without an event between them begin behind the same event.
    select greatest(0, seqs_between.upto - seqs_between.after - coalesce((
        select sum(greatest(0, least(seqs_between.upto, j.after - 1) - greatest(seqs_between.after, j.before)))
        from (
            select s.before, max(s.after) as after from pipeline.seq_jumps s
            where s.events_table = coalesce(seqs_between.events_table, pipeline.default_events_table())
            group by s.before
        ) j), 0))::bigint
$$;
revoke execute on function pipeline.seqs_between(events_table text, after bigint, upto bigint) from public;
