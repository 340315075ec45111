-- Insert deleted rows again with their new values, and the values that were kept.
insert into {table} as t {columns} overriding system value
select {values} from {elements}
join pg_temp.pipeline_carried c on c.seq = s.{seq}
