-- Return the operations in the temporary table, and if all values of their rows are known.
select {operation}, bool_and({left} is null) from pg_temp.pipeline_given group by 1
