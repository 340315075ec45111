-- Check the settings of a consumer before it is created.
create or replace function pipeline.check_consumer(made pipeline.consumers) returns void
language plpgsql immutable set search_path = ''
as $$
declare
    wrong text := case
        when made.name is null or made.name !~ '^[A-Za-z0-9_.-]{1,63}$' then format(
            'a consumer cannot be named %L: give 1 to 63 of the letters A-Z a-z, digits, _ . and -', made.name)
        when made.kind is null or made.kind not in ('records', 'cursor') then format(
            'kind is %L: give records or cursor', made.kind)
        when made.collapse is null then 'collapse must be true or false'
        when not made.collapse and made.kind = 'cursor' then
            'collapse is for consumers of kind records: a cursor reads each event'
        when made.visibility is null or made.visibility <= interval '0' then 'visibility must be longer than 0'
        when made.max_deliveries < 1 then 'max_deliveries must be at least 1, or null for no limit'
        when made.max_unacknowledged < 1 then 'max_unacknowledged must be at least 1, or null for no limit'
        when made.kind = 'cursor' and (made.group_by is not null or made.max_deliveries is not null
            or made.max_unacknowledged is not null) then
            'group_by, max_deliveries and max_unacknowledged are for consumers of kind records'
        when exists (select from unnest(made.tables) t where t is null or t !~ '[.*]') then
            'tables takes patterns like public.orders or shop.*: each with its schema'
        when exists (select from unnest(made.tables) t where length(t) - length(replace(t, '*', '')) > 32) then
            'tables takes patterns with at most 32 stars each: one star stands for any text, also for several parts'
        when exists (select from unnest(made.actions) a where a is null
            or a not in ('insert', 'update', 'delete', 'truncate', 'read', 'message')) then
            'actions takes insert, update, delete, truncate, read and message'
        when exists (select from unnest(made.group_by) c where c is null) then 'group_by takes names of columns'
    end;
begin
    if wrong is not null then
        raise invalid_parameter_value using message = wrong;
    end if;
end $$;
revoke execute on function pipeline.check_consumer(made pipeline.consumers) from public;
