"""Lists of the words and operators of Postgres that a condition may have, or must not have. Pure."""

from __future__ import annotations


def _listed(words: str) -> frozenset[str]:
    return frozenset(words.split())


_ITSELF = _listed(
    """
    and array as between case cast distinct else end false from ilike in is isnull like not notnull null or symmetric
    then true when
    """
)
KEYWORDS = {
    **{word: word.upper() for word in _ITSELF},
    **dict.fromkeys(("any", "all", "some"), "QUANTIFIER"),
    **dict.fromkeys(("current_date", "current_timestamp", "localtime", "localtimestamp"), "MOMENT"),
}
"""Keywords, each with its token in the grammar."""

RESERVED = _listed(
    """
    all analyse analyze and any array as asc asymmetric both case cast check collate column constraint create
    current_catalog current_date current_role current_time current_timestamp current_user default deferrable desc
    distinct do else end except false fetch for foreign from grant group having in initially intersect into lateral
    leading limit localtime localtimestamp not null offset on only or order placing primary references returning
    select session_user some symmetric system_user table then to trailing true union unique user using variadic when
    where window with
    """
)
ONLY_FUNCTIONS = _listed(
    """
    authorization binary collation concurrently cross current_schema freeze full ilike inner is isnull join left like
    natural notnull outer overlaps right similar tablesample verbose
    """
)
"""Words that may name functions and types without quotes, but columns only in quotes."""
NO_FUNCTIONS = _listed(
    """
    between bigint bit boolean char character coalesce dec decimal exists extract float greatest grouping inout int
    integer interval json json_array json_arrayagg json_exists json_object json_objectagg json_query json_scalar
    json_serialize json_table json_value least merge_action national nchar none normalize nullif numeric out overlay
    position precision real row setof smallint substring time timestamp treat trim values varchar xmlattributes
    xmlconcat xmlelement xmlexists xmlforest xmlnamespaces xmlparse xmlpi xmlroot xmlserialize xmltable
    """
)
"""Words that may name columns. If a parenthesis follows, they begin an expression with its own grammar."""

SPECIAL = frozenset({"coalesce", "greatest", "least", "nullif"})
"""Expressions that are written like functions; no search path finds another function of the name."""
PLAIN_FUNCTIONS = {"substring": "substring", "overlay": "overlay", "trim": "btrim"}
"""Words of NO_FUNCTIONS that may also be called with ordinary arguments, and the function that such a call means."""

TYPES: dict[str, tuple[str, str]] = {
    "int": ("int4", ""),
    "integer": ("int4", ""),
    "smallint": ("int2", ""),
    "bigint": ("int8", ""),
    "real": ("float4", ""),
    "float": ("float8", ""),
    "double precision": ("float8", ""),
    "decimal": ("numeric", ""),
    "dec": ("numeric", ""),
    "boolean": ("bool", ""),
    "char": ("bpchar", "(1)"),
    "character": ("bpchar", "(1)"),
    "character varying": ("varchar", ""),
    "bit": ("bit", "(1)"),
    "bit varying": ("varbit", ""),
    "varchar": ("varchar", ""),
    "numeric": ("numeric", ""),
    "json": ("json", ""),
    "interval": ("interval", ""),
    "time": ("time", ""),
    "timestamp": ("timestamp", ""),
}
"""Type names of SQL: the name in pg_catalog, and the length if the user gives none."""

COMPARISONS = frozenset({"=", "<>", "!=", "<", "<=", ">", ">="})
ADDITIONS, PRODUCTS = frozenset({"+", "-"}), frozenset({"*", "/", "%"})
OTHER_OPERATORS = _listed(
    "|| -> ->> #> #>> #- @> <@ ? ?| ?& && ~ ~* !~ !~* ~~ ~~* !~~ !~~* & | # << >> &< &> -|- ^@ @@ @?"
)
"""Operators that share one precedence: all that are not in another list here."""
OPERATOR_CHARACTERS = "+-*/<>=~!@#%^&|`?"
