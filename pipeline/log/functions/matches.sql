-- Whether one of these patterns names the table.
create or replace function pipeline.matches(tables text[], schema_name text, table_name text) returns boolean
language sql immutable parallel safe
as $$
    -- Patterns like 'public.*'; an empty list matches every table.
    select cardinality(tables) = 0 or exists (
        select from unnest(tables) as pattern
        where schema_name || '.' || table_name like
            replace(replace(replace(replace(pattern, '\', '\\'), '%', '\%'), '_', '\_'), '*', '%'))
$$;
revoke execute on function pipeline.matches(tables text[], schema_name text, table_name text) from public;
