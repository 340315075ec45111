"""Words and operators of Postgres that a condition may or may not have. Pure."""

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
"""Each with the token of the grammar that it is."""

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
"""Words that may name functions and types; columns only in quotes."""
NO_FUNCTIONS = _listed(
    """
    between bigint bit boolean char character coalesce dec decimal exists extract float greatest grouping inout int
    integer interval json json_array json_arrayagg json_exists json_object json_objectagg json_query json_scalar
    json_serialize json_table json_value least merge_action national nchar none normalize nullif numeric out overlay
    position precision real row setof smallint substring time timestamp treat trim values varchar xmlattributes
    xmlconcat xmlelement xmlexists xmlforest xmlnamespaces xmlparse xmlpi xmlroot xmlserialize xmltable
    """
)
"""Words that may name columns; before a parenthesis they begin what has a grammar of its own."""

SPECIAL = frozenset({"coalesce", "greatest", "least", "nullif"})
"""What is written like a function and is none; no search path finds another of the name."""
PLAIN_FUNCTIONS = {"substring": "substring", "overlay": "overlay", "trim": "btrim"}
"""Of NO_FUNCTIONS: those that take arguments between commas too, and the function that they call then."""

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
"""What the grammar calls types: their names in the catalog, and the length where none is given."""

COMPARISONS = frozenset({"=", "<>", "!=", "<", "<=", ">", ">="})
ADDITIONS, PRODUCTS = frozenset({"+", "-"}), frozenset({"*", "/", "%"})
OTHER_OPERATORS = _listed(
    "|| -> ->> #> #>> #- @> <@ ? ?| ?& && ~ ~* !~ !~* ~~ ~~* !~~ !~~* & | # << >> &< &> -|- ^@ @@ @?"
)
"""Those of one rank: what is not listed with its own."""
OPERATOR_CHARACTERS = "+-*/<>=~!@#%^&|`?"
