-- Staged rows that lack unchanged values. `known_pk`: the key that the row had before; null where there is no telling. An
-- insert is what a row filter has made of an update, and an older version did not stage the key before.
select w.*, case when w.action = 'update' and (w.previous_pk is not null or coalesce(w.changes, '{{}}') = '{{}}')
    then coalesce(w.previous_pk, w.record_pk) end as known_pk
from {rows} w
where w.unchanged_columns is not null
