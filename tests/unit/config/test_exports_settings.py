"""Settings of exports: defaults, the section of the file, and what is said of a wrong value."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pipeline.config import cron
from pipeline.config.bucket import LakeBucket
from pipeline.config.settings import load
from pipeline.errors import ConfigError
from pipeline.exports import lakes

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)  # a Saturday


def test_defaults(tmp_path: Path) -> None:
    config = load(data_dir=tmp_path)
    assert config.exports == tmp_path / "exports"
    assert (config.export_schedule, config.export_timeout, config.spark_master) == ("*/5 * * * *", 3600, "local[*]")
    assert (config.export_formats, config.export_iceberg_catalog, config.export_iceberg_uri) == (
        ("parquet",),
        "lake",
        "",
    )
    assert load(export_formats="parquet, iceberg").export_formats == ("parquet", "iceberg")


@pytest.mark.parametrize("given", ["", " "])
def test_a_blank_folder_is_not_given(given: str, tmp_path: Path) -> None:
    assert load(data_dir=tmp_path, export_dir=given).exports == tmp_path / "exports"


def test_a_folder_is_taken_from_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert load(export_dir="lake").exports == tmp_path / "lake"


def test_a_bucket_is_taken_as_it_is() -> None:
    config = load(export_dir=" s3://shop-lake/a/b/ ")
    assert config.exports == LakeBucket("s3://shop-lake/a/b")
    assert str(lakes.folder(config, "public.audit/events")) == "s3://shop-lake/a/b/public.audit%2Fevents"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("gs://lake/a", "gs: is not supported: name a local folder, a mounted folder, or s3://bucket/prefix"),
        ("abfss://lake@account/a", "abfss: is not supported"),
        ("s3a://lake/a", "s3a: is not supported"),
        ("s3:/lake", "expected s3://bucket/prefix with the name of a bucket"),
        ("s3://Lake", "expected s3://bucket/prefix with the name of a bucket"),
        ("s3://lake/a//b", "expected a prefix without empty parts"),
        ("s3://lake/../b", "expected a prefix without empty parts"),
        ("s3://lake/a#b", ".*`, #, . and blanks"),
    ],
)
def test_what_is_no_lake_is_refused(url: str, said: str) -> None:
    with pytest.raises(ConfigError, match=f"PIPELINE_EXPORT_DIR: {said}"):
        load(export_dir=url)


def test_the_section_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text('[exports]\ndir = "/lake"\nschedule = "OFF"\ntimeout = 60\n[log]\nlevel = "debug"\n')
    config = load(file)
    assert (config.export_dir, config.export_schedule, config.export_timeout) == (Path("/lake"), "off", 60)
    assert config.log_level == "debug"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("exports = 1", r"must be a section: write \[exports\], with keys such as dir, schedule"),
        ("[source]\ndsn = 'x'", r"can have no section \[source\]: write source_dsn above its sections"),
        ("log = 1", r"must be a section: write \[log\], with keys such as level, format"),
        ("[exports]\nshedule = 'off'", "unknown setting 'export_shedule'.*did you mean export_schedule"),
    ],
)
def test_a_wrong_section(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=said):
        load(file)


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("export_formats", "iceberg", "PIPELINE_EXPORT_FORMATS: expected parquet in the list"),
        (
            "export_formats",
            "parquet, orc",
            "PIPELINE_EXPORT_FORMATS: unknown format 'orc'; the formats are: parquet, iceberg",
        ),
        ("export_iceberg_uri", "s3://x", "PIPELINE_EXPORT_ICEBERG_URI: expected the http:// or https:// address"),
        ("export_iceberg_catalog", "a b", "PIPELINE_EXPORT_ICEBERG_CATALOG: "),
        ("export_schedule", "every day", "PIPELINE_EXPORT_SCHEDULE: expected minute, hour, .* or off, not 'every day'"),
        ("export_schedule", "", "PIPELINE_EXPORT_SCHEDULE: expected minute"),
        ("export_schedule", "99 * * * *", "not '99 .*higher than the maximum value"),
        ("export_schedule", "0 0 * * 8", "8 is not a day of the week"),
        ("export_schedule", "0 0 31 2 *", "never occurs"),
        ("export_timeout", "0", "PIPELINE_EXPORT_TIMEOUT: input should be greater than or equal to 1"),
        ("spark_master", "somewhere", r"PIPELINE_SPARK_MASTER: expected local\[\*\].*not 'somewhere'"),
    ],
)
def test_a_wrong_value_is_named(setting: str, value: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load(None, **{setting: value})


@pytest.mark.parametrize(
    "master", ["local", "local[4]", "local[2,3]", "spark://host:7077", "spark://a:1,b:2", "yarn", "k8s://https://x:443"]
)
def test_masters(master: str) -> None:
    assert load(spark_master=master).spark_master == master


@pytest.mark.parametrize(
    ("expression", "day"),
    [("0 0 * * 0", "Sun"), ("0 0 * * 7", "Sun"), ("0 0 * * 1", "Mon"), ("0 0 * * 2-4", "Tue"), ("0 0 * * fri", "Fri")],
)
def test_weekdays_are_counted_as_crontab_does(expression: str, day: str) -> None:
    assert cron.parse(expression).get_next_fire_time(None, NOW).strftime("%a") == day


@pytest.mark.parametrize(
    ("field", "days"),
    [("*/2", "Sun Tue Thu Sat"), ("5-7", "Fri Sat Sun"), ("0-6", "Sun Mon Tue Wed Thu Fri Sat"), ("1,3", "Mon Wed")],
)
def test_ranges_and_steps_of_weekdays(field: str, days: str) -> None:
    trigger = cron.parse(f"0 0 * * {field}")
    found, at = set(), trigger.get_next_fire_time(None, NOW)
    for _ in range(7):
        found.add(at.strftime("%a"))
        at = trigger.get_next_fire_time(at, at)
    assert found == set(days.split())


def test_the_scheduler_and_spark_are_not_imported_for_settings() -> None:
    code = (
        "import sys, pipeline.config.settings; pipeline.config.settings.load();"
        "assert 'apscheduler' not in sys.modules;"
        "import pipeline.server.schedule, pipeline.api.app, pipeline.operate.preflight.check;"
        "assert not {'pyspark', 'pyarrow', 'adbc_driver_postgresql'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[3], check=True)


@pytest.mark.parametrize(
    ("age", "formats", "seconds"),
    [
        (None, "parquet", 86_400),
        (None, "parquet,iceberg", 0),
        ("15m", "parquet,iceberg", 900),
        (0, "parquet", 0),
        (" 12H ", "parquet", 43_200),
        ("", "parquet", 86_400),
    ],
)
def test_large_tables_wait_unless_iceberg_tables_are_to_be_as_of_one_seq(
    age: object, formats: str, seconds: float
) -> None:
    assert load(export_latest_age=age, export_formats=formats).export_latest_age_seconds == seconds


def test_an_age_is_a_duration() -> None:
    with pytest.raises(ConfigError, match=r"export_latest_age|EXPORT_LATEST_AGE"):
        load(export_latest_age="soon")
