-- The epoch of a source.
select s.epoch from pipeline.sources s where s.id = %(source)s
