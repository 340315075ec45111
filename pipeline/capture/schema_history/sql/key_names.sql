-- Read the names of the key columns in all versions of these relations, and from where on they hold.
select r.from_lsn, r.from_idx, r.key_columns
from pipeline.relations r
where r.source_id = %(source)s and r.epoch = %(epoch)s and r.relation_oid = any(%(oids)s)
order by r.from_lsn, r.from_idx, r.id
