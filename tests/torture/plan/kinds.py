"""Tables of every kind, for the connections that also change them, as they are when a seed begins. SQL and names."""

from __future__ import annotations

ODD_LANES = (5, 6)
"""Connections that write to these tables, and change them while they do."""
SCHEMAS = "kinds*"
"""Their names, as a pattern of PIPELINE_TABLES has it: some are renamed."""
LONG = "a name of 63 bytes, which is all that Postgres keeps of it …"  # and with that, 63 bytes

TYPES = """
    create schema types;
    create type types.mood as enum ('sad', 'ok', 'it''s "fine"');
    create domain types.positive as int check (value > 0);
    create domain types.doc as jsonb;
    create domain types.mail as text;
    create type types.place as (x int, name text, tags text[]);
"""
_PLAIN = """
    create schema kinds_a;
    create table kinds_a.plain (
        id int primary key, amount numeric(12,2), note text, small varchar(10), n int, big text);
    alter table kinds_a.plain alter column big set storage external;
    create table kinds_a.composite (
        "Zeta" text, mid int, a date, "b c" numeric(10,2), note text, primary key (a, "Zeta", "b c"));
    create table kinds_a.full_keyed (code text, id int, note text, big text, primary key (id) include (note));
    alter table kinds_a.full_keyed replica identity full, alter column big set storage external;
    create table kinds_a.full_keyless (note text, n int, big text);
    alter table kinds_a.full_keyless replica identity full;
    create table kinds_a.by_index (id int primary key, code text not null, part bool not null, note text, big text);
    create unique index by_index_code on kinds_a.by_index (part, code);
    alter table kinds_a.by_index replica identity using index by_index_code;
    create table kinds_a.nothing (id int primary key, note text);
    alter table kinds_a.nothing replica identity nothing;
    create table kinds_a.no_key (n int, note text, doc jsonb);
    create table kinds_a.toasted (id int primary key, big text, doc jsonb, raw bytea, list text[], small int);
    alter table kinds_a.toasted alter column big set storage external, alter column raw set storage external;
    create unlogged table kinds_a.unlogged (id int primary key, note text);
"""
_TREES = """
    create schema kinds_b;
    create table kinds_b.parted (region text, id int, note text, big text, primary key (region, id))
        partition by list (region);
    create table kinds_b.parted_n partition of kinds_b.parted for values in ('n');
    create table kinds_b.parted_s (big text, id int not null, gone int, note text, region text not null);
    alter table kinds_b.parted_s drop column gone;
    alter table kinds_b.parted attach partition kinds_b.parted_s for values in ('s');
    create table kinds_b.parted_e partition of kinds_b.parted for values in ('e', 'w') partition by range (id);
    create table kinds_b.parted_e_low partition of kinds_b.parted_e for values from (minvalue) to (500000);
    create table kinds_b.parted_e_high partition of kinds_b.parted_e for values from (500000) to (maxvalue);
    create table kinds_b.keyless_parts (id int, note text) partition by hash (id);
    create table kinds_b.keyless_parts_0 partition of kinds_b.keyless_parts for values with (modulus 2, remainder 0);
    create table kinds_b.keyless_parts_1 partition of kinds_b.keyless_parts for values with (modulus 2, remainder 1);
    create table kinds_b.parent (id int primary key, note text);
    create table kinds_b.child (extra numeric, primary key (id)) inherits (kinds_b.parent);
    create table kinds_b.keyless_child (odd jsonb) inherits (kinds_b.parent);
    create table kinds_b.owner (id int primary key, note text);
    create table kinds_b.owned (
        id int primary key, owner int references kinds_b.owner on delete cascade on update cascade);
    create table kinds_b.made (id int primary key, note text,
        twice int generated always as (id * 2) stored, shout text generated always as (upper(note)) stored, last int);
"""
_TYPED = f"""
    create schema "kinds %s ""odd"".";
    create table "kinds %s ""odd""."."select" (
        "from" int primary key, "%(x)s" text, "a.b" jsonb, "é🐎" int[], "{LONG}" text, " " varchar(5), "{{}}" bytea);
    create table "kinds %s ""odd""."."T""x'" ("K" text, "k" text, v json, primary key ("k", "K"));
    create table "kinds %s ""odd""."."numbers" (
        id uuid primary key, s smallint, i int, b bigint, n numeric, m numeric(38,10), r real, d float8,
        t bool, o oid, c money, bits bit(3), varbits varbit);
    create table "kinds %s ""odd""."."times" (
        at timestamptz primary key, d date, ts timestamp, t time, tz timetz, i interval, r tstzrange, lists date[]);
    create table "kinds %s ""odd""."."texts" (
        k bytea primary key, c char(5), q "char", n name, j json, jb jsonb, x inet, y cidr, m macaddr, p point,
        v tsvector, l pg_lsn, a text[], na numeric[], ja jsonb[], ir int4range, nm nummultirange);
    create table "kinds %s ""odd""."."ours" (
        p types.positive, mood types.mood, place types.place, doc types.doc, mail types.mail,
        places types.place[], moods types.mood[], primary key (mood, p));
"""
_WIDE = f"""
    create table kinds_a.wide (id int primary key, {", ".join(f"w{n} text" for n in range(40))});
"""
WATCH_ALL = """
    do $$ declare t regclass; begin
        for t in select c.oid from pg_class c join pg_namespace n on n.oid = c.relnamespace
            where n.nspname ~ '^kinds' and c.relkind = 'r' and c.relpersistence = 'p'
        loop call private.watch_over(t); end loop;
    end $$;
"""
TABLES = TYPES + _PLAIN + _TREES + _TYPED + _WIDE
