-- A row when there are letters to write again.
select from pipeline.dead_letters where source_id = %(source)s and state = 'retrying' limit 1
