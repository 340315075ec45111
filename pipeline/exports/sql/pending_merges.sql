-- Return true if the lake in a directory has small files that may be merged: two of a table and day, or of a day that is over.
select exists (
    select from pipeline.lakes l
    join pipeline.export_files f on f.lake_id = l.id and f.day is not null and f.merged < 2
    where l.directory = %(directory)s and (
        f.day < ((now() - interval '1 hour') at time zone 'UTC')::date
        or f.merged = 0 and exists (
            select from pipeline.export_files o
            where o.lake_id = f.lake_id and o.table_oid = f.table_oid and o.day = f.day and o.merged = 0 and o.id <> f.id
        )
    )
)
