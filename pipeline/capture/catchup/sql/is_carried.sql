-- Whether transactions that the log has from earlier epochs may still come.
select exists (
    select from pipeline.carried_transactions where source_id = %(source)s and commit_lsn >= %(position)s
)
