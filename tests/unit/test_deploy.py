"""The files for systemd and Kubernetes, checked without a systemd that runs and without a cluster."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

DEPLOY = Path(__file__).parents[2] / "deploy"
UNIT = DEPLOY / "systemd" / "pipeline.service"
MANIFESTS = DEPLOY / "kubernetes"
SYSTEMD_ANALYZE = shutil.which("systemd-analyze")
needs_systemd = pytest.mark.skipif(SYSTEMD_ANALYZE is None, reason="systemd-analyze is not installed")
Validated = subprocess.CompletedProcess[str]


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(SYSTEMD_ANALYZE), *arguments], capture_output=True, text=True, check=False)


@needs_systemd
def test_systemd_finds_nothing_wrong_in_the_unit(tmp_path: Path) -> None:
    """With a program that exists here, since systemd looks for it."""
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/pipeline/bin/pipeline", shutil.which("true") or ""))
    done = analyze("verify", str(unit))
    assert (done.returncode, done.stderr) == (0, "")
    unit.write_text(unit.read_text().replace("TimeoutStopSec", "TimeoutStopSeconds"))
    assert "TimeoutStopSeconds" in analyze("verify", str(unit)).stderr


@needs_systemd
def test_the_exposure_of_the_service_is_below_three() -> None:
    done = analyze("security", "--offline=true", "--threshold=30", str(UNIT))
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_unit_lets_java_compile_and_the_server_drain() -> None:
    lines = UNIT.read_text().splitlines()
    assert not [line for line in lines if line.startswith("MemoryDenyWriteExecute")]
    assert "@resources" not in UNIT.read_text().partition("SystemCallFilter=~")[2]  # the server lowers its priority
    assert {"TimeoutStopSec=40", "KillMode=mixed"} <= set(lines)


def test_each_secret_of_the_unit_is_a_credential() -> None:
    text = UNIT.read_text()
    loaded = re.findall(r"^LoadCredential=(\w+):/etc/pipeline/\1$", text, re.MULTILINE)
    used = re.findall(r"^Environment=(\w+)_FILE=%d/(\w+)$", text, re.MULTILINE)
    assert used == [(f"PIPELINE_{name.upper()}", name) for name in loaded]
    assert {"source_dsn", "source_read_dsn", "database_dsn", "api_token"} == set(loaded)


def validated(*files: Path) -> Validated:
    command = [sys.executable, "-m", "kubernetes_validate", "--strict", *map(str, files)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def manifests() -> list[Path]:
    names = YAML(typ="safe").load((MANIFESTS / "kustomization.yaml").read_text())["resources"]
    return [MANIFESTS / name for name in names]


def pod() -> Any:
    return YAML(typ="safe").load((MANIFESTS / "deployment.yaml").read_text())["spec"]["template"]["spec"]


def test_the_manifests_fit_kubernetes_and_a_misspelt_probe_does_not(tmp_path: Path) -> None:
    assert {*manifests(), MANIFESTS / "kustomization.yaml"} == set(MANIFESTS.iterdir())
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text((MANIFESTS / "deployment.yaml").read_text().replace("readinessProbe", "readynessProbe"))
    done = validated(*manifests(), wrong)
    said = done.stdout + done.stderr
    assert done.returncode
    assert said.count(" passed ") == len(manifests())
    assert "readynessProbe" in said


def test_a_standby_is_ready_and_may_drain() -> None:
    [server] = pod()["containers"]
    assert server["readinessProbe"]["httpGet"]["path"] == "/readyz?role=api"
    assert server["livenessProbe"]["httpGet"]["path"] == server["startupProbe"]["httpGet"]["path"] == "/healthz"
    assert pod()["terminationGracePeriodSeconds"] == 40


def test_the_pod_is_not_root_writes_no_root_and_has_secrets_as_files() -> None:
    [server] = pod()["containers"]
    assert pod()["securityContext"]["runAsNonRoot"] and server["securityContext"]["readOnlyRootFilesystem"]
    secrets = [(each["name"], each["value"]) for each in server["env"] if each["name"].endswith(("_DSN", "_TOKEN"))]
    assert secrets == []
    [mounted] = [each["mountPath"] for each in server["volumeMounts"] if each["name"] == "secrets"]
    files = {each["value"] for each in server["env"] if each["name"].endswith("_FILE")}
    names = ("source_dsn", "source_read_dsn", "database_dsn", "api_token")
    assert files == {f"{mounted}/{name}" for name in names}
