-- Insert the rows that the table lacks.
insert into {into} {columns} overriding system value
select {staged} from pg_temp.pipeline_staged s where not exists (select from {table} t where {same})
