-- Store a leaf as the catalog has it now.
insert into pipeline.partitions (source_id, epoch, root_oid, leaf_oid, leaf_name, bounds, attached_by)
values (%(source)s, %(epoch)s, %(root_oid)s, %(leaf_oid)s, %(leaf_name)s, %(bounds)s, %(attached_by)s)
on conflict (source_id, root_oid, leaf_oid) do update
set epoch = excluded.epoch, leaf_name = excluded.leaf_name, bounds = excluded.bounds, attached_by = excluded.attached_by,
    seen_at = excluded.seen_at
