-- A backfill pauses, or goes on: with its ranges where they are planned, else with the wait before that.
update pipeline.backfills
set state = case when %(paused)s then 'paused' when files = '{}' then 'waiting' else 'reading' end
where id = %(id)s and case when %(paused)s then state in ('waiting', 'reading') else state = 'paused' end
