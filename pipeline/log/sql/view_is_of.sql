-- Return a row if the view of the log shows this table.
select from pg_rewrite w
join pg_depend d on d.classid = 'pg_rewrite'::regclass and d.objid = w.oid and d.refclassid = 'pg_class'::regclass
where w.ev_class = 'pipeline.events'::regclass and d.refobjid = %(table)s::regclass
limit 1
