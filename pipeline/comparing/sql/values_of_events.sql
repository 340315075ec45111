-- The values of events, column by column.
select e.seq, {texts}, array[{written}], array[{older}], e.unchanged_columns, coalesce(e.metadata ? 'parked', false)
from {events} e where e.seq = any({seqs}::bigint[])
