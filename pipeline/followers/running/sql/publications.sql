-- Return the epoch of a source, and the publications that are in use.
select s.epoch, array(
        select p.name from jsonb_object_keys(case when s.published = '{}' then s.publications else s.published end) p (name)
        order by p.name
    ) as publications
from pipeline.sources s where s.id = %(source)s
