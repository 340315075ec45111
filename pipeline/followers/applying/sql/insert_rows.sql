-- Insert rows.
insert into {table} as t {columns} overriding system value
select {values} from {elements}
