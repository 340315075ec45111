#!/usr/bin/env bash
# Runs compose.yml with writers, kills the server and Postgres, and counts: each row is one event.
# Needs an engine and Compose 2; elsewhere it says that it did not run. It has its own project, ports and volumes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export COMPOSE_PROJECT_NAME=wal-compose-test POSTGRES_PASSWORD=compose-test PIPELINE_API_TOKEN=compose-test
export POSTGRES_PORT=25433 PIPELINE_HTTP_PORT=22312 PIPELINE_GRPC_PORT=22051
compose() { docker compose "$@"; }
if ! { docker info && compose version --short | grep -E '^v?[2-9]'; } >/dev/null 2>&1; then
  echo "compose-test: no engine with Compose 2 answers here, so nothing was run"
  exit 0
fi
work=$(mktemp -d)
end() { touch "$work/enough"; wait; rm -rf "$work"; compose down --volumes --timeout 40 >/dev/null 2>&1 || true; }
trap end EXIT
sql() { compose exec -T postgres psql --quiet -v ON_ERROR_STOP=1 -U "$1" -d "$2" -Atc "$3"; }
step() { printf '== %s\n' "$*"; }

step "build and start"
compose up --build --detach --wait
sql app source "create table orders (id bigint generated always as identity primary key, writer int);
  insert into orders (writer) values (0)"
for _ in $(seq 120); do # after its existing row was read, each row is one insert
  [ "$(sql pipeline pipeline "select count(*) from sequin_events where action = 'read'")" = 1 ] && break
  sleep 1
done

step "four writers, while the server and Postgres are killed"
for writer in 1 2 3 4; do
  while [ ! -e "$work/enough" ]; do
    sql app source "insert into orders (writer) values ($writer)" >/dev/null 2>&1 || sleep 0.2
  done &
done
for victim in server server postgres server; do
  sleep 5
  compose kill "$victim" >/dev/null 2>&1
  compose up --detach --wait >/dev/null 2>&1 || { echo "compose-test: not healthy again after a kill of $victim"; exit 1; }
done
sleep 5
touch "$work/enough"
wait

step "count"
compose up --detach --wait
for _ in $(seq 120); do
  rows=$(sql app source "select count(*) from orders")
  events=$(sql pipeline pipeline "select count(*) from sequin_events where source_table_name = 'orders'")
  [ "$events" -ge "$rows" ] && break
  sleep 1
done
keys=$(sql pipeline pipeline "select count(distinct record_pk) from sequin_events where source_table_name = 'orders'")
printf '%s rows, %s events of %s rows\n' "$rows" "$events" "$keys"
[ "$rows" -gt 0 ] && [ "$rows" = "$events" ] && [ "$rows" = "$keys" ] || { compose logs server; exit 1; }
compose exec -T server pipeline verify
echo "compose-test: each of $rows rows is one event, through four kills"
