-- Name the columns that the dead letter's change left out, which stay left out.
update {events} e
set unchanged_columns = array(select jsonb_array_elements_text(d.unchanged_columns::jsonb))
from pipeline.dead_letters d
where e.seq = %(seq)s and d.id = %(id)s and d.unchanged_columns is not null
