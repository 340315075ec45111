-- Return true if a column of a table accepts nulls at the source now. The column is given by its number, which a rename
-- does not change, or by its name. Existing rows may have nulls if the not null constraint is not valid; attnotnull is
-- true even then.
select not a.attnotnull or exists (select from pg_catalog.pg_constraint k
    where k.conrelid = a.attrelid and k.contype = 'n' and a.attnum = any(k.conkey) and not k.convalidated)
from pg_catalog.pg_attribute a
where a.attrelid = %(oid)s::oid and not a.attisdropped
    and case when %(number)s::int is null then a.attname = %(column)s else a.attnum = %(number)s::int end
