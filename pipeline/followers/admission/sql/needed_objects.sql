-- Objects other than tables that columns, defaults, checks and indexes of these tables and their partitions need:
-- extensions, types, functions, sequences that belong to no table. Each has the SQL that creates it, or null if no SQL
-- can. Objects that others need come first.
with recursive made as (
    select t.oid::oid as root, r.oid
    from pg_catalog.unnest(%(oids)s::bigint[]) t (oid)
    cross join lateral (
        select t.oid::oid as oid union select relid from pg_catalog.pg_partition_tree(t.oid::oid::regclass)
    ) r
), parts as (
    select m.root, 'pg_class'::regclass::oid as classid, m.oid as objid from made m
    union all
    select m.root, 'pg_class'::regclass, i.indexrelid from made m join pg_catalog.pg_index i on i.indrelid = m.oid
    union all
    select m.root, 'pg_attrdef'::regclass, f.oid from made m join pg_catalog.pg_attrdef f on f.adrelid = m.oid
    union all
    select m.root, 'pg_constraint'::regclass, c.oid from made m
    join pg_catalog.pg_constraint c on c.conrelid = m.oid and c.contype <> 'f'
), needed (root, classid, objid, depth) as (
    select p.root, p.classid, p.objid, 0 from parts p
    union
    select n.root, d.refclassid, d.refobjid, n.depth + 1
    from needed n
    cross join lateral (
        select n.classid, n.objid
        union all
        select 'pg_constraint'::regclass, c.oid from pg_catalog.pg_constraint c
        where n.classid = 'pg_type'::regclass and c.contypid = n.objid and c.convalidated
        union all
        select 'pg_class'::regclass, t.typrelid from pg_catalog.pg_type t
        where n.classid = 'pg_type'::regclass and t.oid = n.objid and t.typrelid <> 0
    ) has (classid, objid)
    cross join lateral (
        select d.refclassid, d.refobjid from pg_catalog.pg_depend d
        where d.classid = has.classid and d.objid = has.objid and d.deptype in ('n', 'i')
        union all
        -- Functions that the body of a function calls; Postgres stores no dependency on them. The body names the schema,
        -- or the function can find the other one without a schema.
        select 'pg_proc'::regclass, f.oid
        from pg_catalog.pg_proc p
        join pg_catalog.pg_namespace o on o.oid = p.pronamespace
        join pg_catalog.pg_proc f on f.oid >= 16384 and f.oid <> p.oid
        join pg_catalog.pg_namespace s on s.oid = f.pronamespace
        where has.classid = 'pg_proc'::regclass and p.oid = has.objid
            and pg_catalog.strpos(pg_catalog.lower(p.prosrc), pg_catalog.lower(f.proname)) > 0
            and p.prosrc ~* pg_catalog.format('(%%s%%s)"?%%s"?\s*\(',
                pg_catalog.format('\m%%s"?\s*\.\s*', pg_catalog.regexp_replace(s.nspname, '(\W)', '\\\1', 'g')),
                case when s.nspname in (o.nspname, 'public') or exists (
                    select from pg_catalog.unnest(p.proconfig || array(
                        select g from pg_catalog.pg_db_role_setting r cross join pg_catalog.unnest(r.setconfig) g
                        where r.setdatabase = (
                            select b.oid from pg_catalog.pg_database b where b.datname = pg_catalog.current_database())
                    )) c
                    where c ~ pg_catalog.format('^search_path=(.*[ ,"])?%%s($|[ ,"])',
                        pg_catalog.regexp_replace(s.nspname, '(\W)', '\\\1', 'g'))
                ) then '|(?<![\w.$])' else '' end,
                pg_catalog.regexp_replace(f.proname, '(\W)', '\\\1', 'g'))
    ) d
    where n.depth < 40 and d.refobjid >= 16384
        and d.refclassid in ('pg_type'::regclass, 'pg_proc'::regclass, 'pg_class'::regclass, 'pg_collation'::regclass,
            'pg_operator'::regclass, 'pg_opclass'::regclass)
        and not exists (select from pg_catalog.pg_depend e  -- an extension creates what it needs itself
            where e.classid = n.classid and e.objid = n.objid and e.deptype = 'e')
        and (d.refclassid <> 'pg_class'::regclass
            or exists (select from pg_catalog.pg_class s where s.oid = d.refobjid and s.relkind = 'S'
                and not exists (select from pg_catalog.pg_depend o
                    where o.classid = 'pg_class'::regclass and o.objid = s.oid and o.deptype in ('a', 'i'))))
        and (d.refclassid <> 'pg_type'::regclass
            or not exists (select from pg_catalog.pg_type y join pg_catalog.pg_class c on c.oid = y.typrelid
                where y.oid = d.refobjid and c.relkind <> 'c'))
), found as (
    select coalesce(e.refclassid, n.classid) as classid, coalesce(e.refobjid, n.objid) as objid,
        pg_catalog.max(n.depth) as depth,
        pg_catalog.array_agg(distinct s.nspname || '.' || c.relname order by s.nspname || '.' || c.relname) as tables
    from needed n
    join pg_catalog.pg_class c on c.oid = n.root
    join pg_catalog.pg_namespace s on s.oid = c.relnamespace
    left join pg_catalog.pg_depend e on e.classid = n.classid and e.objid = n.objid and e.deptype = 'e'
    where n.depth > 0
    group by 1, 2
)
select a.type as kind, i.identity, a.object_names as names, a.object_args as args, f.tables,
    coalesce(x.nspname, i.schema)::text as schema,
    case when f.classid = 'pg_extension'::regclass
            then pg_catalog.format('create extension if not exists %%I with schema %%I', e.extname, x.nspname)
        when p.prokind in ('f', 'p', 'w') then pg_catalog.rtrim(pg_catalog.pg_get_functiondef(p.oid), E'\n')
        when q.seqrelid is not null then pg_catalog.format(
            'create sequence %%s as %%s increment by %%s minvalue %%s maxvalue %%s start with %%s cache %%s%%s', i.identity,
            pg_catalog.format_type(q.seqtypid, null), q.seqincrement, q.seqmin, q.seqmax, q.seqstart, q.seqcache,
            case when q.seqcycle then ' cycle' else '' end)
        when t.typtype = 'e' then pg_catalog.format('create type %%s as enum (%%s)', i.identity, (
            select pg_catalog.string_agg(pg_catalog.quote_literal(l.enumlabel), ', ' order by l.enumsortorder)
            from pg_catalog.pg_enum l where l.enumtypid = t.oid))
        when t.typtype = 'c' then pg_catalog.format('create type %%s as (%%s)', i.identity, (
            select pg_catalog.string_agg(pg_catalog.concat(pg_catalog.quote_ident(c.attname), ' ',
                pg_catalog.format_type(c.atttypid, c.atttypmod)), ', ' order by c.attnum)
            from pg_catalog.pg_attribute c where c.attrelid = t.typrelid and c.attnum > 0 and not c.attisdropped))
        when t.typtype = 'r' then (
            select pg_catalog.format('create type %%s as range (subtype = %%s%%s, multirange_type_name = %%s)', i.identity,
                pg_catalog.format_type(r.rngsubtype, null),
                case when r.rngsubdiff = 0 then '' else ', subtype_diff = ' || r.rngsubdiff::regproc end,
                pg_catalog.format_type(r.rngmultitypid, null))
            from pg_catalog.pg_range r where r.rngtypid = t.oid and r.rngcanonical = 0)
        when t.typtype = 'd' then pg_catalog.concat('create domain ', i.identity, ' as ',
            pg_catalog.format_type(t.typbasetype, t.typtypmod), ' default ' || t.typdefault,
            case when t.typnotnull then ' not null' end, (
                select pg_catalog.string_agg(pg_catalog.format(' constraint %%I %%s', c.conname,
                    pg_catalog.pg_get_constraintdef(c.oid)), '' order by c.conname)
                from pg_catalog.pg_constraint c where c.contypid = t.oid and c.contype = 'c' and c.convalidated))
    end as definition
from found f
cross join lateral pg_catalog.pg_identify_object_as_address(f.classid, f.objid, 0) a
cross join lateral pg_catalog.pg_identify_object(f.classid, f.objid, 0) i
left join pg_catalog.pg_extension e on f.classid = 'pg_extension'::regclass and e.oid = f.objid
left join pg_catalog.pg_namespace x on x.oid = e.extnamespace
left join pg_catalog.pg_proc p on f.classid = 'pg_proc'::regclass and p.oid = f.objid
left join pg_catalog.pg_sequence q on f.classid = 'pg_class'::regclass and q.seqrelid = f.objid
left join pg_catalog.pg_type t on f.classid = 'pg_type'::regclass and t.oid = f.objid
where t.oid is null or t.typtype <> 'm' and not exists (select from pg_catalog.pg_type y where y.typarray = t.oid)
order by e.oid is null, f.depth desc, 2
