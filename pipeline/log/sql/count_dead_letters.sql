-- How many dead letters there are in each state.
select state, count(*) from pipeline.dead_letters group by state
