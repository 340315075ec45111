#!/usr/bin/env bash
# What a user gets: the wheel, built from the sdist, in an empty environment, used from a folder that is not the repository.
# PYTHON names a Python with hatchling (`make package-test` passes the one of .venv).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

root=$PWD
python=$("${PYTHON:-python3}" -c 'import sys; print(sys.executable)')
work=$(mktemp -d)
server=
end() { [ -z "$server" ] || { kill "$server" && wait "$server"; } || true; }
trap 'end; rm -rf "$work"' EXIT
for name in $(compgen -e | grep -E '^(PIPELINE_|PG|PYTHONPATH$)' || true); do unset "$name"; done
step() { printf '== %s\n' "$*"; }
fail() { printf 'package-test: %s\n' "$*" >&2; exit 1; }

step "sdist"
"$python" -m hatchling build --target sdist --directory "$work/sdist"

step "wheel, from the unpacked sdist"
mkdir "$work/source"
tar -xzf "$work"/sdist/*.tar.gz --strip-components 1 -C "$work/source"
(cd "$work/source" && "$python" -m hatchling build --target wheel --directory "$work/wheel")

step "install it in an empty environment"
"$python" -m venv "$work/venv"
install() {
  "$work/venv/bin/python" -m pip install --quiet --disable-pip-version-check --constraint "$root/constraints.txt" \
    "$(echo "$work"/wheel/*.whl)$1"
}
install ""

mkdir "$work/elsewhere"
cd "$work/elsewhere"
export PATH="$work/venv/bin:$PATH"

step "every module, without the extras"
python - <<'PYTHON'
from __future__ import annotations

import importlib
import pkgutil

import pipeline

for module in pkgutil.walk_packages(pipeline.__path__, "pipeline."):
    if not module.name.endswith("__main__") and not module.name.startswith(("pipeline._alembic", "pipeline._spark")):
        importlib.import_module(module.name)
PYTHON

step "install the extras"
install "[demo]"

step "what it put there"
python - <<'PYTHON'
from __future__ import annotations

import base64
import hashlib
from importlib import metadata
from pathlib import Path

import alembic
import pipeline

# Our folder `alembic` must not have gone into the library of that name: nothing changed, nothing added.
files = metadata.distribution("alembic").files or []
recorded = {Path(file.locate()): file.hash for file in files if file.parts[0] == "alembic"}
for path, recorded_hash in recorded.items():
    if recorded_hash is not None:
        digest = hashlib.new(recorded_hash.mode, path.read_bytes()).digest()
        found = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        assert found == recorded_hash.value, f"{path} is not what Alembic installed"
for path in Path(alembic.__file__).parent.rglob("*.*"):
    assert "__pycache__" in path.parts or path in recorded, f"{path} is not Alembic's"

package = Path(pipeline.__file__).parent
assert "site-packages" in package.parts, f"pipeline was imported from {package}"
for name in ("_alembic/env.py", "_alembic/script.py.mako", "_alembic/versions", "_spark/export.py", "_spark/reach.py", "_spark/lake/states",
             "rpc/protos/event_log.proto", "rpc/protos/plugin.proto"):
    assert (package / name).exists(), f"the wheel lacks pipeline/{name}"
ours = metadata.distribution("wal-pipeline-server").files or []
top = {file.parts[0] for file in ours if file.parts[0] != ".." and not file.parts[0].endswith(".dist-info")}
assert top == {"pipeline", "pyspark_sequin_events"}, f"the wheel installs other modules: {sorted(top)}"
PYTHON

step "pipeline --help"
pipeline --help >help.txt || fail "pipeline --help ended with exit $?"
grep -q demo help.txt || fail "pipeline --help does not name the command demo"

step "pipeline migrate"
PIPELINE_DATA_DIR="$work/data" pipeline migrate || fail "pipeline migrate ended with exit $?"

step "pipeline demo --seconds 5"
PIPELINE_DATA_DIR="$work/demo" pipeline demo --seconds 5 >demo.txt || {
  code=$?
  cat demo.txt >&2
  fail "pipeline demo ended with exit $code"
}
grep -q "every change arrived once, in order" demo.txt || fail "pipeline demo ended well but gave no verdict"
grep -q "every event is in the lake, once" demo.txt || fail "pipeline demo ended well but exported nothing"

step "pipeline serve with each schedule every minute, and every command beside it"
export PIPELINE_DATA_DIR="$work/served" PIPELINE_EXPORT_SCHEDULE="* * * * *" PIPELINE_EXPORT_COMPACTION="* * * * *"
export PIPELINE_VERIFY_SCHEDULE="* * * * *" PIPELINE_RETENTION=30d PIPELINE_GRPC_PORT=off
PIPELINE_HTTP_PORT=$(python -c 'import socket; print(socket.create_server(("127.0.0.1", 0)).getsockname()[1])')
export PIPELINE_HTTP_PORT
pipeline serve >serve.txt 2>&1 &
server=$!
python -I "$root/tests/package_commands.py" || { cat serve.txt >&2; fail "a command or a schedule failed"; }
end
server=

echo "package-test: the wheel works in an empty environment, from a folder of its own"
