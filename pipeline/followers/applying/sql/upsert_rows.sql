-- Insert rows, or update rows that exist.
insert into {table} as t {columns} overriding system value
select {values} from {elements}
on conflict ({key}) do {action}
