-- Return the place of an event in the history of its source.
select source_epoch as epoch, commit_lsn as lsn, commit_idx as idx from {events} where seq = %(seq)s limit 1
