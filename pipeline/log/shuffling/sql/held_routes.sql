-- What the changes of a source go by now.
select events_table, routes from pipeline.routes where source_id = %(source)s order by id desc limit 1
