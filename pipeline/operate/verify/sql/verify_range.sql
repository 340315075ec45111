-- Totals of a range of rows, and the number of rows that break each rule.
select count(*) as rows, count(commit_lsn) as placed, max(seq) as last_seq,
    count(*) filter (where begins) as transactions, count(*) filter (where skips) as skips,
    count(*) filter (where disordered) as disordered, count(*) filter (where gapped) as gapped,
    count(*) filter (where torn) as torn
from ({rows}) r
