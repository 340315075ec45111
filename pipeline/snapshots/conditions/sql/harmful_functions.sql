-- Names of functions that a condition must not call, each with what is wrong. Only the arguments decide which function
-- of a name Postgres calls, so all functions of the name must be harmless. Stable and immutable functions can still do harm:
-- functions with arguments of cstring and the like run the input function of any type, with the checks of users' domains
-- (domain_in), or the internals of Postgres; pg_input_is_valid and json_populate_record run such checks too;
-- txid_current and pg_current_xact_id write; table_to_xml and similar functions read tables; satisfies_hash_partition
-- and many pg_… functions lock tables, run SQL, or show files, sessions and definitions; current_setting and the
-- functions about privileges show what the role sees.
select called.name,
    case
        when not exists (
            select from pg_catalog.pg_proc p
            where p.proname = called.name and p.pronamespace = 'pg_catalog'::pg_catalog.regnamespace
        ) then 'is no function of Postgres itself'
        else 'is not allowed'
    end as reason
from pg_catalog.unnest(%(functions)s::pg_catalog.text[]) called (name)
where not exists (
        select from pg_catalog.pg_proc p
        where p.proname = called.name and p.pronamespace = 'pg_catalog'::pg_catalog.regnamespace
    )
    or exists (
        select from pg_catalog.pg_proc p
        where p.proname = called.name and p.pronamespace = 'pg_catalog'::pg_catalog.regnamespace
            and (
                p.oid >= 16384 or p.provolatile not in ('i', 's') or p.prokind <> 'f' or p.proretset
                or exists (
                    select from pg_catalog.pg_type t
                    where t.oid = any (p.proargtypes || p.prorettype) and t.typtype = 'p'
                        and t.typname !~ '^any'
                )
            )
    )
    or (
        called.name ~ '^pg_'
        and called.name not in ('pg_column_size', 'pg_size_bytes', 'pg_size_pretty', 'pg_typeof', 'pg_wal_lsn_diff')
    )
    or called.name ~ '^(current_setting|format_type|getpgusername|inet_(client|server)_.*|lo_.*|row_security_active)$'
    or called.name ~ '^(to_reg[a-z]+|reg[a-z]+send|regclass)$'
    or called.name ~ '^(has_.*_privilege|txid_.*|satisfies_hash_partition|(sh)?obj_description)$'
    or called.name ~ '^(col_description|jsonb?_(populate|to)_record.*|.*_to_xml.*)$'
order by 1
