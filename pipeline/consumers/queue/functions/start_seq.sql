-- Return the seq after which a consumer begins, from the argument `start`. `events_table`: null is the default one.
create or replace function pipeline.start_seq(start text, events_table text) returns bigint
language plpgsql stable set search_path = ''
as $$
declare
    head bigint := pipeline.log_head(start_seq.events_table);
    lowest bigint := pipeline.log_floor(start_seq.events_table);
    asked bigint;
begin
    if start = 'now' then
        return greatest(head, lowest);
    elsif start = 'beginning' then
        return lowest;
    elsif start is null or start !~ '^[0-9]{1,18}$' then
        raise invalid_parameter_value using message = format('start is %L', start),
            hint = 'Give ''now'', ''beginning'', or a seq to begin after.';
    end if;
    asked := start::bigint;
    if asked > greatest(head, lowest) then
        raise invalid_parameter_value using
            message = format('start %s is beyond the newest event, which is %s', asked, head);
    elsif asked < lowest then
        raise numeric_value_out_of_range using
            message = format('events up to seq %s are no longer kept, so no consumer can begin after %s', lowest, asked),
            hint = format('Begin after %s, or at ''beginning'': the oldest event that is kept.', lowest);
    end if;
    if pipeline.before_jump(start_seq.events_table, asked) < asked then
        raise numeric_value_out_of_range using
            message = format('seq %s is of an event of a log that was lost, so no consumer can begin after it', asked),
            hint = format('Begin after %s, the newest event before that.',
                pipeline.before_jump(start_seq.events_table, asked));
    end if;
    return asked;
end $$;
revoke execute on function pipeline.start_seq(start text, events_table text) from public;

-- Return the seq after which a consumer of the default events table begins.
create or replace function pipeline.start_seq(start text) returns bigint
language sql stable set search_path = ''
as $$
    select pipeline.start_seq(start, null)
$$;
revoke execute on function pipeline.start_seq(start text) from public;
