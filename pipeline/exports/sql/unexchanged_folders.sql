-- Folders that the file system of a lake in a directory, or of one within it, cannot exchange; null: any folder.
select l.directory, f.folder, f.reason
from pipeline.lakes l
cross join lateral (
    select null as folder, l.cannot_exchange as reason where l.cannot_exchange is not null
    union all
    select s.key, s.value from jsonb_each_text(l.stays) s
) f
where (l.directory = %(directory)s or starts_with(l.directory, %(directory)s || '/')) and l.released_at is null
order by l.created_at, f.folder nulls first
