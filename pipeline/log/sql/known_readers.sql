-- List every reader of any events table, except those that read it only as a help.
select kind, name from pipeline.readers where kind <> 'backfill'
