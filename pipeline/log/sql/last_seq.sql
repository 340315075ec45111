-- Read the newest seq that was handed out; seqs that a jump has skipped are not.
select coalesce((
        select min(j.before) from pipeline.seq_jumps j
        where j.events_table = %(name)s and j.before < s.seq and s.seq < j.after), s.seq)
from (select case when is_called then last_value else 0 end as seq from {sequence}) s
