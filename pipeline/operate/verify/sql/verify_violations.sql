-- The first rows of a range that break a rule.
select r.*, (
    select concat_ws('.', nullif(source_table_schema, ''), source_table_name) from {events} e where e.seq = r.seq
) as table_name
from ({rows}) r where {rule} limit %(shown)s
