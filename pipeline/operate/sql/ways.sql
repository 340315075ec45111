-- How many changes of a source went which way, and why.
select way, reason, changes from pipeline.ways where source_id = %(source)s order by way, changes desc, reason
