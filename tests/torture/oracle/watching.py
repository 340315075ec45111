"""A witness inside of the source: triggers that write down what each change was and how its table was at that place.

They run in the writer's own transaction, so what they write commits, or not, with it, savepoints included. They know
tables by what a statement of that transaction sees, and values by Postgres's own output; nothing of logical decoding.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import psycopg

from tests.torture.oracle.forms import Eras, Order, change, keys_by, row_of
from tests.torture.plan.plan import Change

WITNESS = """
    create table private.witness (n bigserial, xid bigint, action text, form jsonb, old text, new text);
    create index on private.witness (xid);
    create table private.notes (n bigint default nextval('private.witness_n_seq'), form jsonb,
        xid bigint default pg_current_xact_id()::text::bigint & 4294967295);
    -- A table as it is now: its names, columns and key, and which actions of it are published.
    create function private.form_of(relation oid) returns jsonb language sql stable as $$
        with me as (
            select c.oid, n.nspname || '.' || c.relname as name, c.relreplident::text as identity,
                coalesce(pg_partition_root(c.oid), c.oid) as root
            from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = relation
        ), own as (
            select a.attname as name, a.attnum, a.attgenerated::text as generated,
                (with recursive base as (
                    select t.oid, t.typtype, t.typbasetype from pg_type t where t.oid = a.atttypid
                    union all
                    select t.oid, t.typtype, t.typbasetype from base join pg_type t on t.oid = base.typbasetype
                    where base.typtype = 'd'
                ) select max(oid) filter (where oid in (114, 3802)) from base)::int as json,
                a.atttypid::int as type
            from pg_attribute a where a.attrelid = relation and a.attnum > 0 and not a.attisdropped
        ), key as (
            select a.attname as name
            from me join pg_index i on i.indrelid = me.oid
            join pg_attribute a on a.attrelid = me.oid and a.attnum = any((i.indkey::int2[])[0:i.indnkeyatts - 1])
            where case me.identity when 'd' then i.indisprimary and i.indimmediate when 'f' then i.indisprimary
                when 'i' then i.indisreplident else false end
        ), told as (
            select coalesce(bool_or(p.pubinsert), false) as insert, coalesce(bool_or(p.pubupdate), false) as update,
                coalesce(bool_or(p.pubdelete), false) as delete, coalesce(bool_or(p.pubtruncate), false) as truncate,
                coalesce(bool_or(to_jsonb(p) ->> 'pubgencols' = 's'), false) as generated
            from pg_publication p join pg_publication_rel r on r.prpubid = p.oid
            where r.prrelid = relation or r.prrelid in (select relid from pg_partition_ancestors(relation))
        )
        select jsonb_build_object(
            'oid', relation::bigint, 'file', pg_relation_filenode(relation)::bigint,
            'root', me.root::bigint, 'name', me.name, 'identity', me.identity,
            'table', (select n.nspname || '.' || c.relname from pg_class c
                join pg_namespace n on n.oid = c.relnamespace where c.oid = me.root),
            'columns', (select coalesce(jsonb_agg(to_jsonb(own) order by attnum), '[]') from own),
            'key', (select coalesce(jsonb_agg(key.name order by a.attnum), '[]') from key
                join pg_attribute a on a.attrelid = me.root and a.attname = key.name),
            'told', to_jsonb(told))
        from me, told
    $$;
    create function private.watch() returns trigger language plpgsql set search_path = '' as $$
    begin
        insert into private.witness (xid, action, form, old, new) values (
            pg_current_xact_id()::text::bigint & 4294967295, lower(tg_op), private.form_of(tg_relid),
            case when tg_op in ('UPDATE', 'DELETE') then old::text end,
            case when tg_op in ('INSERT', 'UPDATE') then new::text end);
        return null;
    end $$;
    create procedure private.watch_over(relation regclass) language plpgsql as $$
    begin  -- a name before those of foreign keys' triggers: what they do comes after
        execute format('create trigger "A watch" after insert or update or delete on %s'
            ' for each row execute function private.watch()', relation);
        execute format('create trigger "A watch emptied" after truncate on %s'
            ' for each statement execute function private.watch()', relation);
    end $$;
"""


@dataclass
class Seen:
    """By xid, what committed transactions changed in published tables, in their order; and kinds of it, counted."""

    changes: dict[int, list[Change]] = field(default_factory=lambda: defaultdict(list))
    kinds: Counter[str] = field(default_factory=Counter)
    changed: set[int] = field(default_factory=set)
    """Tables that had more than one form."""


def read(source: psycopg.Connection) -> Seen:
    """All that the witness wrote down."""
    seen, eras = Seen(), Eras()
    other, keys, lost = _other_names(source), _keys_beside_full(source), {oid for (oid,) in source.execute(_KEY_LOST)}
    gone = {oid for (oid,) in source.execute(_GONE)}
    query = """
        select n, xid, action, form, old, new from private.witness
        union all select n, null, 'note', form, null, null from private.notes order by n"""
    for number, xid, action, form, old, new in source.execute(query):
        era = eras.enter(form) if form else 0
        if action == "note":
            continue
        if action == "message":
            seen.changes[xid].append(Change(f".{old}", action, "", {"content": new}))
        elif form["told"][action]:
            wanted = change(action, form, old, new)
            also = {name: keys_by(orders, form, action, old, new) for name, orders in other(form).items()}
            others = keys[form["oid"]][1:]
            dropped = bool(others) and not form["key"]
            other_key = dropped or any(number < at or xid < by for at, by, _ in others)
            if form["identity"] == "f" and (other_key or form["oid"] in gone):
                known = {order for _, _, order in keys[form["oid"]]} | {()}
                also[form["table"]] = keys_by(known, form, action, old, new, other=True)
            if form["identity"] in ("d", "i") and form["oid"] in lost:
                also[form["table"]] = keys_by({()}, form, action, old, new, other=True)
            seen.changes[xid].append(wanted._replace(also=also, row=row_of(form, old, era)))
            seen.kinds.update(_kinds(action, form))
        else:
            seen.kinds[f"unpublished {action}"] += 1
    seen.changed = eras.changed
    return seen


NOTE = """
    insert into private.notes (form)
    select private.form_of(c.oid) from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where n.nspname ~ '^kinds' and c.relkind = 'r'"""
"""After DDL, so that it is known which forms there were."""


def _other_names(source: psycopg.Connection) -> Callable[[dict[str, Any]], dict[str, set[Order]]]:
    """Names that a table's events may have besides the right one: those that logical decoding does not send.

    When a partition root is renamed, attached or detached, nothing tells of it. To rename a schema locks no table: a
    transaction that is open then may have either name, and before 18 nothing tells of it at all. With each, the orders
    that key columns have under it, by their numbers: a column may be renamed later.
    """
    named: dict[int, set[str]] = defaultdict(set)
    rooted: dict[int, dict[str, set[tuple[int, ...]]]] = defaultdict(lambda: defaultdict(set))
    for (form,) in source.execute("select distinct form from private.notes"):
        numbers = {column["name"]: column["attnum"] for column in form["columns"]}
        named[form["oid"]].add(form["name"])
        rooted[form["oid"]][form["table"]].add(tuple(numbers[column] for column in form["key"]))

    def other(form: dict[str, Any]) -> dict[str, set[Order]]:
        oid, name = form["oid"], form["name"]
        if form["root"] != oid or rooted[oid].keys() - named[oid]:
            names = {column["attnum"]: column["name"] for column in form["columns"]}
            return {
                root: {tuple(names[number] for number in order) for order in orders if names.keys() >= set(order)}
                for root, orders in rooted[oid].items()
                if root != form["table"]
            }
        table = name.rpartition(".")[2]
        return {other: set() for other in named[oid] if other.rpartition(".")[2] == table and other != name}

    return other


def _keys_beside_full(source: psycopg.Connection) -> dict[int, list[tuple[int, int, Order]]]:
    """Which primary key each table had, and from when on, by what transaction.

    Logical decoding sends none beside full identity, and the catalog has only the last one, and none of a table that is
    gone. Where it changes while the worker is behind, or in a transaction that began later than one that uses it,
    nothing tells which it was; nor, where it was dropped, whether that was before the change.
    """
    found: dict[int, list[tuple[int, int, Order]]] = defaultdict(list)
    query = """
        select (form ->> 'oid')::bigint, form -> 'key', n, xid from private.notes
        where form ->> 'identity' in ('d', 'f') order by n"""
    for oid, key, number, xid in source.execute(query):
        if not found[oid] or found[oid][-1][2] != tuple(key):
            found[oid].append((number, xid, tuple(key)))
    query = "select conrelid::bigint, xmin::text::bigint from pg_constraint where contype = 'p'"
    for oid, xid in source.execute(query):
        if oid in found and xid > found[oid][-1][1]:  # the same columns, created again
            found[oid].append((0, xid, found[oid][-1][2]))
    return found


_GONE = """
    select (form ->> 'oid')::bigint from private.notes
    where (form ->> 'oid')::bigint not in (select oid::bigint from pg_class)
    group by 1 having count(distinct form ->> 'identity') > 1 or count(distinct form -> 'key') > 1"""
"""Tables that are gone, and that got full identity or another key after they were published."""


_KEY_LOST = """
    select distinct (form ->> 'oid')::bigint from private.notes
    where form ->> 'identity' in ('d', 'i') and form -> 'key' = '[]'"""
"""Tables that had no key once. If VACUUM found them without an index, Postgres sends no key of earlier changes:
it sets pg_class.relhasindex in place, which the catalog of then shows as well."""


def _kinds(action: str, form: dict[str, Any]) -> Iterator[str]:
    yield f"{_IDENTITIES[form['identity']]} {action}"
    if form["root"] != form["oid"]:
        yield f"partition {action}"
    if len(form["key"]) > 1:
        yield f"composite {action}"
    if any(column["generated"] for column in form["columns"]):
        yield f"generated {action}"


_IDENTITIES = {"d": "default", "f": "full", "i": "index", "n": "nothing"}
_LACKING = """
    select c.oid::regclass::text from pg_class c join pg_namespace n on n.oid = c.relnamespace,
        private.form_of(c.oid) as form
    where n.nspname ~ '^kinds' and c.relkind = 'r' and c.relpersistence = 'p'
        and not ((form -> 'told' ->> 'insert')::bool and (form -> 'told' ->> 'truncate')::bool
            and ((form -> 'told' ->> 'update')::bool
                or c.relispartition or (form -> 'key' = '[]' and form ->> 'identity' <> 'f')
                or exists (select from jsonb_array_elements(form -> 'columns') as a where a ->> 'generated' <> '')))"""


def lacking(source: psycopg.Connection) -> list[str]:
    """Tables that should be published by now, and are not, or not with their updates."""
    return [name for (name,) in source.execute(_LACKING)]
