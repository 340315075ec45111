"""Names of followers: what is one, which is taken, what one is made of."""

from __future__ import annotations

import pytest

from pipeline.config import follower_passwords
from pipeline.config.settings import unknown_variables
from pipeline.errors import FollowerRefusedError
from pipeline.followers import names

SHOP = {"host": "db.example.com", "port": "5433", "dbname": "shop"}


@pytest.mark.parametrize("name", ["reports", "a", "A.b-c_9", "x" * 63, "..."])
def test_what_is_a_name(name: str) -> None:
    names.require_free(name, ["others"])


@pytest.mark.parametrize(
    "name", ["", ".", "..", "x" * 64, "a b", "ä", "a/b", "a\n", "postgresql://me:sentinel@db/shop"]
)
def test_what_is_none_is_not_repeated(name: str) -> None:
    with pytest.raises(FollowerRefusedError, match="a follower's name has 1 to 63 of the letters") as raised:
        names.require_free(name, [])
    assert "sentinel" not in str(raised.value)


def test_a_taken_name() -> None:
    with pytest.raises(FollowerRefusedError, match='there is a follower "reports"; choose another name'):
        names.require_free("reports", ["a", "reports"])


@pytest.mark.parametrize("name", ["a_b", "A-B", "a.b"])
def test_two_names_with_one_password_variable(name: str) -> None:
    said = f'"{name}" and the follower "a-b" would have one password variable, PIPELINE_FOLLOWER_PASSWORD_A_B; choose'
    with pytest.raises(FollowerRefusedError) as raised:
        names.require_free(name, ["a-b"])
    assert str(raised.value).startswith(said)


@pytest.mark.parametrize(("name", "taken"), [("a-file", "a"), ("a", "A_FILE")])
def test_a_variable_that_would_name_the_file_of_another(name: str, taken: str) -> None:
    with pytest.raises(FollowerRefusedError, match="one password variable, PIPELINE_FOLLOWER_PASSWORD_A_FILE; choose"):
        names.require_free(name, [taken])


@pytest.mark.parametrize(
    ("parts", "taken", "name"),
    [
        (SHOP, [], "db.example.com-5433-shop"),
        (SHOP, ["db.example.com-5433-shop"], "db.example.com-5433-shop-2"),
        (SHOP, ["db_example_com_5433_shop", "DB.example.com-5433-shop-2"], "db.example.com-5433-shop-3"),
        ({"host": "/run/pg", "port": "5432", "dbname": "shop"}, [], "local-5432-shop"),
        ({"host": "a,b", "port": "1,2", "dbname": "s"}, [], "a-1-s"),
        ({"hostaddr": "::1", "dbname": "Löwe"}, [], "1-L-we"),
        ({"service": "reports"}, [], "reports"),
        ({"host": "h", "dbname": "x" * 70}, [], f"h-{'x' * 61}"),
        ({"host": "h", "dbname": "x" * 70}, [f"h-{'x' * 61}"], f"h-{'x' * 59}-2"),
        ({"dbname": "."}, [], "local"),
    ],
)
def test_a_name_is_made_that_is_free(parts: dict[str, str], taken: list[str], name: str) -> None:
    made = names.make_name(parts, taken)
    assert made == name
    names.require_free(made, taken)


def test_the_check_of_unknown_settings_knows_the_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(follower_passwords.variable("reports-2"), "x")
    monkeypatch.setenv("PIPELINE_FOLLOWER_PASSWORD_", "x")
    monkeypatch.setenv("PIPELINE_FOLLOWER_PASSWORDS_A", "x")
    monkeypatch.setenv("PIPELINE_FOLLOWER_PASSWORD_small", "x")
    assert list(unknown_variables()) == [
        "PIPELINE_FOLLOWER_PASSWORDS_A",
        "PIPELINE_FOLLOWER_PASSWORD_",
        "PIPELINE_FOLLOWER_PASSWORD_small",
    ]
