-- Put rows back that were taken out, with their new values, and the others that they had.
insert into {table} as t {columns} overriding system value
select {values} from {elements}
join pg_temp.pipeline_carried c on c.seq = s.{seq}
