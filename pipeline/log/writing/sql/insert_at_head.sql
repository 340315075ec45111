-- Insert events after `begin_at_head`; an error (22012) if the log is not as the writer expected. The insert is inside of
-- `with`, where Postgres refuses rules. A plain insert that is prepared while a rule replaces it with nothing would do nothing
-- until the session ends: the remaining plan depends on no table, so it is not made again when the rule is dropped.
, written as (
    insert into %(table)s (%(columns)s)
    select * from (values %(events)s) e where exists (select from stored)
    returning 1
)
select 1 / (select count(*) from stored),
    case when count(*) <> %(count)s then ('of %(count)s events arrived ' || count(*))::integer end
from written
