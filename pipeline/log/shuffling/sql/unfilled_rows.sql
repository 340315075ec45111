-- Select staged rows that lack unchanged values. `known_pk`: the key that the row had before; null if it is unknown: for an
-- insert, which a row filter has made of an update, and for rows of an older version, which did not stage that key.
select w.*, case when w.action = 'update' and (w.previous_pk is not null or coalesce(w.changes, '{{}}') = '{{}}')
    then coalesce(w.previous_pk, w.record_pk) end as known_pk
from {rows} w
where w.unchanged_columns is not null
