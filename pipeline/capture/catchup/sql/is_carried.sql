-- Whether transactions of earlier epochs that are in the log may still be replayed.
select exists (
    select from pipeline.carried_transactions where source_id = %(source)s and commit_lsn >= %(position)s
)
