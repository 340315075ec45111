-- Each so many events of a range, of whatever source, the seq of the last one; that of the range's own end not.
select seq from (
    select seq, row_number() over (order by seq) as place from {events} where seq > %(after)s and seq <= %(upto)s
) e
where place %% %(events)s = 0 and seq < %(upto)s
order by seq
