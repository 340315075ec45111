select regexp_extract(filename, 'changes/([^/]+)/', 1) as "table", action, count(*) as events
from read_parquet('{folder}/changes/*/date=*/*.parquet', union_by_name = true, filename = true)
group by 1, 2 order by 1, 2
