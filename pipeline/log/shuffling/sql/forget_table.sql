-- A table that was moved is gone.
delete from pipeline.adopted_tables where id = %(id)s
