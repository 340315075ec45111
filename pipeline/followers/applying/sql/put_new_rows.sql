-- Insert those that were not there to be taken out, as far as all of them is known.
insert into {table} as t {columns} overriding system value
select {values} from {elements}
where s.{left} is null and not exists (select from pg_temp.pipeline_carried c where c.seq = s.{seq})
