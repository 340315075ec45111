"""Decodes text from a database's encoding, for which Postgres and Python have different names."""

from __future__ import annotations

_CODECS = {
    "UTF8": "utf-8",
    "SQL_ASCII": "utf-8",  # any bytes; text among them is most often UTF-8
    "EUC_CN": "gb2312",
    "EUC_JP": "euc_jp",
    "EUC_JIS_2004": "euc_jis_2004",
    "EUC_KR": "euc_kr",
    "KOI8R": "koi8_r",
    "KOI8U": "koi8_u",
    "WIN866": "cp866",
    "WIN874": "cp874",
    **{f"WIN125{number}": f"cp125{number}" for number in range(9)},
    **{f"ISO_8859_{number}": f"iso8859_{number}" for number in range(5, 9)},
    **{f"LATIN{number}": f"iso8859_{number}" for number in range(1, 5)},
    "LATIN5": "iso8859_9",
    "LATIN6": "iso8859_10",
    "LATIN7": "iso8859_13",
    "LATIN8": "iso8859_14",
    "LATIN9": "iso8859_15",
    "LATIN10": "iso8859_16",
}
"""Python's name of each encoding; it has none for EUC_TW and MULE_INTERNAL.

From Table 24.3 of Postgres' documentation, `Character Set Support`.
"""


def decode_text(content: bytes, encoding: str) -> str | None:
    """Return the content as text; None if it is not valid in the encoding. `encoding`: its name in Postgres."""
    try:
        return content.decode(_CODECS.get(encoding, "ascii"))
    except UnicodeDecodeError:
        return None
