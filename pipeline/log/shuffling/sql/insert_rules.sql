-- Return a row if a rule replaces an insert into this table: the insert reports the rows of its replacement as its count.
select w.rulename::text from pg_rewrite w
where w.ev_class = to_regclass(%(table)s::text) and w.ev_type = '3' and w.is_instead and w.ev_enabled <> 'D' limit 1
