-- What is to be done with the rows that were passed on, and whether all of their values are known.
select {operation}, bool_and({left} is null) from pg_temp.pipeline_given group by 1
