-- Whether there is a session whose slot may exist.
select exists (select from pipeline.sessions where dropped_at is null)
