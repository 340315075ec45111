"""Where this server is reached: its ports and certificates, looked at before anything starts, and named in the log."""

from __future__ import annotations

import logging
from collections.abc import Collection

from pipeline.config import certificates
from pipeline.config.settings import Config
from pipeline.errors import AddressInUse
from pipeline.process import ports

logger = logging.getLogger(__name__)


def require(config: Config, chosen: Collection[str]) -> None:
    """Raises AddressInUse for a port that these roles need and that is taken, ConfigError for a wrong certificate.

    The default port of gRPC is not needed: the role waits for it, and everything else is served.
    """
    if "api" in chosen or "grpc" in chosen:
        certificates.context(config)
    if "api" in chosen:
        _require_free(config.http_host, config.http_port, "PIPELINE_HTTP_PORT")
    if "grpc" in chosen and "grpc_port" in config.model_fields_set:
        _require_free(config.http_host, int(config.grpc_port), "PIPELINE_GRPC_PORT")


def log(config: Config, chosen: Collection[str]) -> None:
    """Say where they are reached, and by whom without a token."""
    host = f"[{config.http_host}]" if ":" in config.http_host else config.http_host
    tls = config.http_certificate is not None
    if "api" in chosen:
        scheme = "https" if tls else "http"
        logger.info("HTTP at %s://%s:%d", scheme, host, config.http_port, extra={"action": "serve.http"})
    if "grpc" in chosen:
        how = "gRPC with TLS" if tls else "gRPC"
        logger.info("%s at %s:%s", how, host, config.grpc_port, extra={"action": "serve.grpc"})
    if config.open_wires and ("api" in chosen or "grpc" in chosen):
        logger.warning(
            "PIPELINE_OPEN_WIRES: whoever reaches this address may use %s without a token",
            ", ".join(config.open_wires),
            extra={"action": "serve.open_wires"},
        )


def _require_free(host: str, port: int, setting: str) -> None:
    if reason := ports.refused(host, port):
        raise AddressInUse(
            f"cannot listen on {host}:{port}: {reason}; stop what uses the port, or choose another {setting}"
        )
