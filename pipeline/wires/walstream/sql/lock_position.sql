-- The position, which no session and no reset moves until the transaction ends; and whether this claim may move it, or
-- a process without a claim, because no process reads the cursor.
select c.position, case when %(claim)s::text is not null then coalesce(c.reader_session = %(claim)s, false)
    else c.reader_session is null or not exists (
        select from pipeline.advisory_locks l
        where l.key1 = 1346981969 and l.key2 = pg_catalog.hashtext(split_part(c.reader_session, ':', 1))
    ) end as may_move
from pipeline.consumers c
where c.name = 'walstream'
for no key update
