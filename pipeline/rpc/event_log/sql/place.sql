-- Return the epoch and commit_lsn of an event of an events table.
select source_epoch, commit_lsn from {events} where seq = %(seq)s
