-- Where in the source's history an event of an events table is.
select source_epoch, commit_lsn from {events} where seq = %(seq)s
