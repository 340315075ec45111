-- Insert the rows that the table lacks; of equal rows, as many as are missing.
insert into {into} {columns} overriding system value
select {chosen} from (
    select s.*, row({staged})::text as {content}, row_number() over (partition by row({staged})::text collate "C") as {number}
    from pg_temp.pipeline_staged s
) c
where not exists (
    select from (
        select row({there})::text as content, row_number() over (partition by row({there})::text collate "C") as number
        from {table} t
    ) h
    where h.content = c.{content} collate "C" and h.number = c.{number}
)
