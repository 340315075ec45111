-- Turn updates and upserts into moves, which delete rows and insert them again.
update pg_temp.pipeline_given set {operation} = 'move' where {operation} in ('update', 'upsert')
