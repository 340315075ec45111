-- Delete the rows that the copy lacks; of equal rows, as many as the table has more than the copy.
delete from {table} t using (
    select h.part, h.location from (
        select t.tableoid as part, t.ctid as location, row({there})::text as content,
            row_number() over (partition by row({there})::text collate "C") as number
        from {table} t
    ) h
    where not exists (
        select from (
            select row({staged})::text as content,
                row_number() over (partition by row({staged})::text collate "C") as number
            from pg_temp.pipeline_staged s
        ) c
        where c.content = h.content collate "C" and c.number = h.number
    )
) stale
where t.ctid = stale.location and t.tableoid = stale.part
