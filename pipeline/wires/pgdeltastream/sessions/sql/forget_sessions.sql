-- Delete ended sessions of a source, except the newest ones, whose clients may still ask for the reason.
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
