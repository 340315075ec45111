-- Nobody writes events, of whatever source, until this transaction ends.
select from pipeline.shuffle_progress order by source_id for update
