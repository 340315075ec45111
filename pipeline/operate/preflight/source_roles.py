"""The roles' part of the preflight: which role reads rows at the source, and what an owner of a table could do."""

from __future__ import annotations

from pipeline.config.settings import Config
from pipeline.findings import CheckFinding, CheckFindings
from pipeline.operate import superusers
from pipeline.operate.preflight import role_sql
from pipeline.operate.preflight.role_sql import SourceRoles
from pipeline.postgres.connections import Connection
from pipeline.printable import sql

NAME, SUPERUSER = "source roles", "superuser"


def run(config: Config, source: Connection, pipeline: Connection | None) -> CheckFindings:
    """Yield findings on the roles, also the roles of followers. `pipeline` is None if it does not answer."""
    user, reader = source.info.user, superusers.reading_user(config, source)
    if user == reader:
        text = (
            f'user "{user}" replicates and reads: the owner of any captured table can read all that this user may '
            "read, read every change of this database, and drop its slots"
        )
        yield CheckFinding(
            "ok", NAME, text, "to prevent the last two, name another role for reading in PIPELINE_SOURCE_READ_DSN"
        )
    else:
        text = f'user "{user}" replicates, and "{reader}" reads: the owner of any captured table can read all that '
        text += f'"{reader}" may read'
        yield CheckFinding("ok", NAME, text)
    yield from _superusers(config, source, pipeline)


def missing(config: Config, source: Connection, pipeline: Connection | None, roles: SourceRoles) -> CheckFindings:
    """Yield a finding with the SQL that grants the rights that these roles lack, if they lack any."""
    if cure := role_sql.cure(config, source, pipeline, roles):
        names = " and ".join(f'"{name}"' for name in dict.fromkeys((roles.replicating, roles.reading)))
        yield CheckFinding(
            "warning", NAME, f"{names}: some rights are missing", "; ".join(map(sql, cure.statements)), cure=cure
        )


def _superusers(config: Config, source: Connection, pipeline: Connection | None) -> CheckFindings:
    found = superusers.find(config, source, pipeline)
    unfit = {risk.user for risk in found if risk.follower is None}
    roles = role_sql.proposed(config, source, unfit) if unfit else None
    for risk in found:
        cure = role_sql.cure(config, source, pipeline, roles) if roles and risk.follower is None else None
        yield CheckFinding("warning", SUPERUSER, risk.text, risk.remedy, cure=cure)
