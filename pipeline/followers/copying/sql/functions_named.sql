-- Functions whose body does not find a name: the function with this signature, or else each function of this name whose
-- body contains the missing name.
select p.oid::pg_catalog.regprocedure::text as signature, n.nspname::text as schema,
    case p.prokind when 'p' then 'procedure' else 'function' end as kind,
    (select pg_catalog.substr(c.setting, 13) from pg_catalog.unnest(p.proconfig) c (setting)
        where c.setting like 'search\_path=%%') as search_path
from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace
where case when pg_catalog.to_regprocedure(%(signature)s) is not null
    then p.oid = pg_catalog.to_regprocedure(%(signature)s)
    else p.proname = %(name)s and pg_catalog.strpos(p.prosrc, %(missing)s) > 0 and n.nspname <> 'pg_catalog' end
order by 1 limit 5
