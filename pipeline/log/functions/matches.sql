-- Whether a table is one of those that patterns name.
create or replace function pipeline.matches(tables text[], schema_name text, table_name text) returns boolean
language sql immutable parallel safe
as $$
    -- Patterns like 'public.*'; none match everything.
    select cardinality(tables) = 0 or exists (
        select from unnest(tables) as pattern
        where schema_name || '.' || table_name like
            replace(replace(replace(replace(pattern, '\', '\\'), '%', '\%'), '_', '\_'), '*', '%'))
$$;
revoke execute on function pipeline.matches(tables text[], schema_name text, table_name text) from public;
