-- Where in the source's history an event of the default events table is.
select source_epoch, commit_lsn from pipeline.events where seq = %(seq)s
