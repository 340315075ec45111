"""[spark] of pipeline.toml, and which masters there are."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.config import settings, spark
from pipeline.errors import ConfigError


@pytest.mark.parametrize(
    "text",
    [
        '[spark]\n"spark.executor.memory" = "2g"\n"spark.ui.enabled" = true\n"spark.cores.max" = 8',
        '[spark]\nspark.executor.memory = "2g"\nspark.ui.enabled = true\nspark.cores.max = 8',
        'spark = {"spark.executor.memory" = "2g", "spark.ui.enabled" = true, "spark.cores.max" = 8}',
    ],
)
def test_the_section_of_the_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "pipeline.toml").write_text(text)
    found = settings.load(tmp_path / "pipeline.toml")
    assert found.spark == {"spark.executor.memory": "2g", "spark.ui.enabled": "true", "spark.cores.max": "8"}
    assert settings.from_json(found.to_json()).spark == found.spark


def test_the_environment_wins_as_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pipeline.toml").write_text("[spark]\nspark.ui.port = 1")
    monkeypatch.setenv("PIPELINE_SPARK", '{"spark.ui.port": 2}')
    assert settings.load(tmp_path / "pipeline.toml").spark == {"spark.ui.port": "2"}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("no json", "expected JSON such as"),
        ("[1]", "expected the section [spark] in the configuration file"),
        ('{"executor.memory": "2g"}', "which begin with spark., not 'executor.memory'"),
        ('{"spark.jars": ["a"]}', "expected a text or a number for spark.jars"),
    ],
)
def test_what_is_wrong_is_named(value: str, expected: str) -> None:
    with pytest.raises(ConfigError, match="PIPELINE_SPARK: ") as caught:
        settings.load(spark=value)
    assert expected in str(caught.value)


@pytest.mark.parametrize("master", ["spark://host", "spark://host:", "spark://:7077", "spark://a:1,b", "spark://a:x"])
def test_a_standalone_master_has_a_port(master: str) -> None:
    with pytest.raises(ConfigError, match="PIPELINE_SPARK_MASTER: expected a host and a port, spark://host:7077"):
        settings.load(spark_master=master)


def test_masters() -> None:
    assert spark.standalone_masters("spark://a:7077,[::1]:7078") == [("a", 7077), ("::1", 7078)]
    for master in ("local[*]", "local", "local-cluster[2,1,1024]", "yarn", "k8s://https://a:6443", "spark://a_b:7077"):
        assert settings.load(spark_master=master).spark_master == master
    assert [spark.is_local(master) for master in ("local[2]", "yarn", "local-cluster[2,1,1]")] == [True, False, True]
