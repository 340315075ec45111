-- Move a cursor's position forward. `session`: only the session that reads the cursor may move it.
create or replace function pipeline.advance(consumer text, seq bigint, session text default null) returns bigint
language plpgsql security definer set search_path = ''
as $$
#variable_conflict use_column
declare
    me pipeline.consumers := pipeline.consumer_of(consumer, 'cursor');
    head bigint;
    reached bigint;
begin
    if advance.seq is null or advance.seq < 0 then
        raise invalid_parameter_value using message = 'seq must be a position in the log';
    end if;
    if advance.seq > me.position then
        head := pipeline.log_head(me.events_table);
        if advance.seq > head and advance.seq > me.position then
            raise invalid_parameter_value using
                message = format('seq %s is beyond the newest event, which is %s', advance.seq, head);
        end if;
    end if;
    update pipeline.consumers c
    set position = greatest(c.position, pipeline.before_jump(me.events_table, advance.seq)), updated_at = clock_timestamp()
    where c.id = me.id and (advance.session is null or c.reader_session = advance.session)
    returning c.position into reached;
    if not found then
        raise object_in_use using
            message = format('consumer %L is not read by this session but by %s', me.name,
                coalesce(me.reader, 'no session')),
            hint = 'Connect again.';
    end if;
    return reached;
end $$;
revoke execute on function pipeline.advance(consumer text, seq bigint, session text) from public;
