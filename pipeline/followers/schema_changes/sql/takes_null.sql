-- Whether a column of a table takes nulls at the source now; by its number, which it keeps when it is renamed, or by name.
select not a.attnotnull from pg_catalog.pg_attribute a
where a.attrelid = %(oid)s::oid and not a.attisdropped
    and case when %(number)s::int is null then a.attname = %(column)s else a.attnum = %(number)s::int end
