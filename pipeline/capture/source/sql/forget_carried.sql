-- Delete the transactions that the slot no longer sends.
delete from pipeline.carried_transactions where source_id = %(source)s and commit_lsn < %(from_lsn)s
