-- Rows that are there are taken out, and put back.
update pg_temp.pipeline_given set {operation} = 'move' where {operation} in ('update', 'upsert')
