-- Insert rows that did not exist, if all of their values are known.
insert into {table} as t {columns} overriding system value
select {values} from {elements}
where s.{left} is null and not exists (select from pg_temp.pipeline_carried c where c.seq = s.{seq})
