-- Texts were printed with an empty search_path and lc_monetary C, so they are read with them. pg_temp is named, so that
-- no temporary table of the caller comes before a name of pg_catalog.
create or replace function pipeline.populate(base anyelement, record jsonb, exact jsonb default null) returns anyelement
language plpgsql stable parallel safe
set search_path = pg_catalog, pg_temp
set lc_monetary = 'C'
set "DateStyle" = 'ISO, YMD'
set "IntervalStyle" = 'postgres'
set array_nulls = on
set xmloption = 'content'
as $$
declare
    filled alias for $0;
    composite pg_type;
    documents text[];
    kept text;
    replaced text;
begin
    -- jsonb_populate_record passes strings and numbers to the input function of each column's type. Columns of json and
    -- jsonb differ: it turns a string into a document and null into an SQL NULL. Those in exact are cast one by one.
    if exact is null then
        return jsonb_populate_record(base, record);
    end if;
    select * into composite from pg_type where oid = pg_typeof(base)::oid;
    while composite.typtype = 'd' loop
        select * into composite from pg_type where oid = composite.typbasetype;
    end loop;
    select coalesce(array_agg(a.attname::text) filter (where a.document), '{}'),
        string_agg(a.field, ', ' order by a.attnum),
        string_agg(case when a.document then a.of_exact else a.field end, ', ' order by a.attnum)
    into documents, kept, replaced
    from (
        select attnum, attname, format('($1).%I', attname) as field,
            format('($2 ->> %L)::%s', attname, format_type(atttypid, atttypmod)) as of_exact,
            -- A domain has the output function of what it is over.
            exact ? attname and (
                select typoutput in ('json_out'::regproc, 'jsonb_out'::regproc) from pg_type where oid = atttypid
            ) as document
        from pg_attribute
        where attrelid = composite.typrelid and attnum > 0 and not attisdropped
    ) a;
    if documents = '{}' then
        return jsonb_populate_record(base, record || exact);
    end if;
    -- A base that is a row, of nulls where it was null: no domain rejects what is missing before it is replaced.
    execute 'select ' || kept into filled using base;
    filled := jsonb_populate_record(filled, (record || exact) - documents);
    execute 'select ' || replaced into filled using filled, exact;
    return filled;
end $$;

comment on function pipeline.populate(anyelement, jsonb, jsonb) is
    'The row of an event as its source had it: pipeline.populate(null::shop.orders, record, exact). Reads no table.';
