-- Insert the rows that are not there.
insert into {into} {columns} overriding system value
select {staged} from pg_temp.pipeline_staged s where not exists (select from {table} t where {same})
