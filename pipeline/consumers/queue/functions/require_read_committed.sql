-- Refuse a transaction that does not see what other sessions commit, if receivers of this consumer must see it.
create or replace function pipeline.require_read_committed(me pipeline.consumers) returns void
language plpgsql stable set search_path = ''
as $$
begin
    if (me.group_by is not null or me.max_unacknowledged is not null or not me.collapse)
        and current_setting('transaction_isolation') not in ('read committed', 'read uncommitted')
    then
        raise active_sql_transaction using message = format('consumer %L has group_by, max_unacknowledged or'
            ' collapse => false, whose receivers have to see each other', me.name),
            hint = 'Do it in a transaction of isolation level read committed.';
    end if;
end $$;
revoke execute on function pipeline.require_read_committed(me pipeline.consumers) from public;
