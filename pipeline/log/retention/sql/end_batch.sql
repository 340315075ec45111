-- Read the last seq of the next few events; null if there are fewer.
select seq from {events} where seq >= %(first)s and seq <= %(upto)s order by seq offset %(rows)s - 1 limit 1
