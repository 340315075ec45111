-- The slot does not send these any more.
delete from pipeline.carried_transactions where source_id = %(source)s and commit_lsn < %(from_lsn)s
