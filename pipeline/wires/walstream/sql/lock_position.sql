-- Lock the position until the transaction ends, so that no session and no reset moves it. may_move: this claim may move
-- it; without a claim: no process reads the cursor.
select c.position, case when %(claim)s::text is not null then coalesce(c.reader_session = %(claim)s, false)
    else c.reader_session is null or not exists (
        select from pipeline.advisory_locks l
        where l.key1 = 1346981969 and l.key2 = pg_catalog.hashtext(split_part(c.reader_session, ':', 1))
    ) end as may_move
from pipeline.consumers c
where c.name = 'walstream'
for no key update
