-- Tables whose rows were moved.
select id, table_name from pipeline.adopted_tables where source_id = %(source)s and state = 'moved' order by id
