-- Ended sessions of a source, but for the newest ones, whose clients may still ask why.
delete from pipeline.sessions
where source_id = %(source_id)s and state = 'ended' and dropped_at is not null and id < (
    select min(newest.id)
    from (
        select id from pipeline.sessions
        where source_id = %(source_id)s and state = 'ended'
        order by id desc
        limit %(kept)s
    ) newest
)
