-- Insert rows, or update those that are there.
insert into {table} as t {columns} overriding system value
select {values} from {elements}
on conflict ({key}) do {action}
