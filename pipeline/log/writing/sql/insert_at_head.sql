-- Events behind `begin_at_head`; where nothing is as planned with, an error (22012). Inside of `with`, where Postgres refuses
-- rules: prepared while one does nothing instead, an insert alone would do nothing for as long as the session lives, as what
-- is left of it depends on no table, and is not planned again when the rule is gone.
, written as (
    insert into %(table)s (%(columns)s)
    select * from (values %(events)s) e where exists (select from stored)
    returning 1
)
select 1 / (select count(*) from stored),
    case when count(*) <> %(count)s then ('of %(count)s events arrived ' || count(*))::integer end
from written
