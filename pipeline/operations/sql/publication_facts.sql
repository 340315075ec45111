-- A publication and what it leaves out.
select p.oid::bigint as oid, p.puballtables as all_tables, p.pubviaroot as via_root,
    array_remove(array[
        case when not p.pubinsert then 'inserts' end,
        case when not p.pubupdate then 'updates' end,
        case when not p.pubdelete then 'deletes' end,
        case when not p.pubtruncate then 'truncates' end
    ], null) as left_out
from pg_publication p
where p.pubname = %(publication)s
