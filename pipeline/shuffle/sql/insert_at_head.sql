-- Events behind `begin_at_head`; where nothing is as planned with, an error (22012).
insert into %(table)s (%(columns)s)
select * from (values %(events)s) e
where (select 1 / count(*) from stored) = 1
