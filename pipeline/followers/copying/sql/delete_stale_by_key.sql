-- Delete the rows that the copy lacks, or has with other values.
delete from {table} t where not exists (
    select from pg_temp.pipeline_staged s where {same} and pg_catalog.record_image_eq(row({there}), row({staged}))
)
