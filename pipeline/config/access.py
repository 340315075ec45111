"""Whether a client may use what PIPELINE_API_TOKEN protects."""

from __future__ import annotations

import secrets

from pipeline.config.settings import Config


def is_token_valid(given: str | None, config: Config) -> bool:
    """Whether that is the token, or none is needed. Takes constant time."""
    if config.api_token is None:
        return True
    return secrets.compare_digest((given or "").encode(), config.api_token.get_secret_value().encode())
