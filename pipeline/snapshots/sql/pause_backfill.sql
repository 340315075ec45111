-- Pause or resume a backfill. A resumed one reads its ranges if they are planned; otherwise it waits for transactions.
update pipeline.backfills
set state = case when %(paused)s then 'paused' when files = '{}' then 'waiting' else 'reading' end
where id = %(id)s and case when %(paused)s then state in ('waiting', 'reading') else state = 'paused' end
