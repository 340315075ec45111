"""The embedded Postgres: set up, found again, stopped; each failure one plain line."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from pipeline.errors import EmbeddedPostgresError
from pipeline.postgres.embedded import EmbeddedServer, wheel_bin_dir
from tests.fixtures.data_directories import prepare
from tests.fixtures.postgres import Cluster
from tests.fixtures.waiting import PATIENCE, eventually

ROOT = Path(__file__).parents[3]
FAST = {"fsync": "off"}
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="not root: left out")

PREPARE = """
import sys, time
from pathlib import Path
from pipeline.postgres.embedded import EmbeddedServer
from pipeline.errors import EmbeddedPostgresError
server = EmbeddedServer(Path(sys.argv[1]), settings={"fsync": "off"})
"""
START = PREPARE + "print(server.start(), flush=True)"
START_AND_STAY = START + "\ntime.sleep(600)"
START_OR_EXPLAIN = PREPARE + "\ntry: print(server.start())\nexcept EmbeddedPostgresError as error: print(error)"


@pytest.fixture
def server(server_directory: Path) -> EmbeddedServer:
    return EmbeddedServer(server_directory, settings=FAST)


@pytest.fixture
def is_set_up(server: EmbeddedServer) -> None:
    """Its first start finds a cluster, and does not make one."""
    prepare(server.directory, server.bin_dir)


@pytest.fixture(scope="module")
def shared(clusters: Callable[[int], Cluster]) -> EmbeddedServer:
    """The session's server, for tests that leave it as it is."""
    server = clusters(18).server
    assert server
    return server


@contextmanager
def python(code: str, directory: Path) -> Iterator[subprocess.Popen[str]]:
    """Its own process group, with its output in a pipe."""
    command = [sys.executable, "-c", code, str(directory)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            yield process
        finally:
            process.kill()


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().strip()


def postmaster(server: EmbeddedServer) -> int:
    return int((server.data / "postmaster.pid").read_text().split()[0])


def kill_postmaster(server: EmbeddedServer) -> int:
    pid = postmaster(server)
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not server.running())
    return pid


def permissions(path: Path) -> dict[Path, tuple[int, int, int]]:
    return {p: (s.st_mode, s.st_uid, s.st_gid) for p in path.parents for s in [p.stat()]}


@contextmanager
def tmpfs(folder: Path, options: str) -> Iterator[Path]:
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", options, "none", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("mounting is not permitted here: left out")
    try:
        yield folder
    finally:
        for name in folder.glob("*/.s.PGSQL.5432"):
            EmbeddedServer(name.parent).stop("immediate")
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def remount(folder: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", str(folder)], check=True)


def one_line(error: pytest.ExceptionInfo[EmbeddedPostgresError]) -> str:
    assert "\n" not in str(error.value)
    return str(error.value)


def test_start_find_and_stop(server: EmbeddedServer) -> None:
    assert not server.running()
    server.stop()
    assert server.start()
    assert server.running()
    with psycopg.connect(server.dsn("postgres")) as conn:
        assert conn.execute("show listen_addresses").fetchone() == ("",)
    assert not server.start()
    server.stop()
    server.stop()
    assert not server.running()
    assert server.start()


def test_it_is_ready_for_logical_replication(shared: EmbeddedServer) -> None:
    with psycopg.connect(shared.dsn("postgres")) as conn:
        for name, expected in [
            ("wal_level", "logical"),
            ("server_encoding", "UTF8"),
            ("wal_sender_timeout", "1min"),
            ("fsync", "off"),
        ]:
            row = conn.execute("select current_setting(%s)", [name]).fetchone()
            assert row == (expected,)


def test_databases_are_created_once(shared: EmbeddedServer) -> None:
    shared.create_databases("source", "events")
    shared.create_databases("events", 'odd "name"')
    with psycopg.connect(shared.dsn('odd "name"')) as conn:
        assert conn.info.dbname == 'odd "name"'


def test_psql_command_connects(shared: EmbeddedServer) -> None:
    command = shared.psql_command("postgres") + " -Atc 'select 6 * 7'"
    assert subprocess.check_output(command, shell=True, text=True).strip() == "42"  # noqa: S602


def test_psql_of_the_wheel_where_there_is_none(server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert server.psql_command("postgres").startswith(str(wheel_bin_dir() / "psql"))


def test_a_port_opens_tcp_beside_the_socket(shared: EmbeddedServer) -> None:
    with psycopg.connect(shared.tcp_dsn("postgres")) as conn:
        assert conn.info.host == "127.0.0.1"
    with psycopg.connect(shared.dsn("postgres")) as conn:
        assert conn.info.host == str(shared.directory)


def test_a_port_that_is_taken(shared: EmbeddedServer, server_directory: Path) -> None:
    with pytest.raises(EmbeddedPostgresError, match="choose another port") as error:
        EmbeddedServer(server_directory, settings=FAST, port=shared.port).start()
    assert str(server_directory) in one_line(error)


def test_without_a_port_there_is_no_tcp(server: EmbeddedServer) -> None:
    with pytest.raises(EmbeddedPostgresError, match="has no port"):
        server.tcp_dsn("postgres")


@pytest.mark.parametrize("major", [16, 15])
def test_other_versions(clusters: Callable[[int], Cluster], major: int) -> None:
    """Whose clusters a test run makes in the same way, once."""
    server = clusters(major).server
    assert server
    assert not server.start()
    with psycopg.connect(server.dsn("postgres")) as conn:
        assert conn.info.server_version // 10000 == major


def test_any_character_but_a_comma_in_the_path(server_directory: Path) -> None:
    server = EmbeddedServer(server_directory.with_name('it\'s "a" $(b) \\'), settings=FAST)
    assert server.start()
    assert not server.start()
    with pytest.raises(EmbeddedPostgresError, match="comma") as error:
        EmbeddedServer(server_directory.with_name("a,b")).start()
    assert "PIPELINE_DATA_DIR" in one_line(error)


@pytest.mark.usefixtures("is_set_up")
def test_it_survives_the_kill_of_its_parent(server: EmbeddedServer) -> None:
    with python(START_AND_STAY, server.directory) as parent:
        assert first_line(parent) == "True"
        pid = postmaster(server)
        parent.kill()
        assert parent.communicate()[0] == ""  # the pipe ends with the parent: the server does not hold it
    with python(START, server.directory) as next_parent:
        assert first_line(next_parent) == "False"
    assert postmaster(server) == pid


@pytest.mark.usefixtures("is_set_up")
def test_it_survives_an_interrupt_of_its_parents_group(server: EmbeddedServer) -> None:
    with python(START_AND_STAY, server.directory) as parent:
        assert first_line(parent) == "True"
        pid = postmaster(server)
        os.killpg(parent.pid, signal.SIGINT)
        parent.wait(PATIENCE)
    assert not server.start()
    assert postmaster(server) == pid


@pytest.mark.usefixtures("is_set_up")
def test_a_killed_postmaster_is_replaced_with_its_data(server: EmbeddedServer) -> None:
    server.start()
    server.create_databases("kept")
    killed = kill_postmaster(server)
    assert server.data.joinpath("postmaster.pid").exists()
    assert server.start()
    assert postmaster(server) != killed
    psycopg.connect(server.dsn("kept")).close()


@pytest.mark.usefixtures("is_set_up")
def test_a_pid_file_whose_number_now_belongs_to_another_program(server: EmbeddedServer) -> None:
    server.start()
    killed = kill_postmaster(server)
    file = server.data / "postmaster.pid"
    file.write_text(file.read_text().replace(str(killed), str(os.getpid()), 1))
    assert server.start()


def test_two_processes_start_one_server(server: EmbeddedServer) -> None:
    with python(START, server.directory) as one, python(START, server.directory) as other:
        assert sorted([first_line(one), first_line(other)]) == ["False", "True"]


def test_a_half_made_cluster_is_made_afresh(server: EmbeddedServer) -> None:
    half = server.directory / "data.new"
    half.mkdir(parents=True)
    (half / "PG_VERSION").write_text("18")
    assert server.start()
    assert not half.exists()


@as_root
def test_root_in_a_private_folder_changes_no_permission(server: EmbeddedServer) -> None:
    server.directory.parent.chmod(0o700)
    before = permissions(server.directory)
    server.start()
    server.stop()
    assert permissions(server.directory) == before
    assert server.directory.stat().st_mode & 0o777 == 0o700
    assert server.data.stat().st_uid == 0


def test_an_unprivileged_user(server_directory: Path) -> None:
    user = unprivileged()
    server_directory.mkdir()
    server_directory.parent.chmod(0o711)
    os.chown(server_directory, user.pw_uid, user.pw_gid)
    before = permissions(server_directory)
    assert run_as(user, START, server_directory).stdout.strip() == "True"
    server = EmbeddedServer(server_directory, settings=FAST)
    assert server.data.stat().st_uid == user.pw_uid
    assert permissions(server_directory) == before
    server.stop()
    assert server.start(), "root starts it as its owner"
    assert server.data.joinpath("postmaster.pid").stat().st_uid == user.pw_uid
    assert run_as(user, START, server_directory).stdout.strip() == "False"


def test_an_unprivileged_user_in_a_folder_of_another(server_directory: Path) -> None:
    user = unprivileged()
    server_directory.parent.chmod(0o755)
    shown = run_as(user, START_OR_EXPLAIN, server_directory).stdout
    assert str(server_directory) in shown
    assert "Permission denied" in shown
    assert "PIPELINE_DATA_DIR" in shown


def unprivileged() -> pwd.struct_passwd:
    if os.geteuid() != 0:
        pytest.skip("not root, so the other tests are the unprivileged user's: left out")
    user = pwd.getpwnam("nobody")
    if run_as(user, "import pipeline.postgres.embedded", ROOT).returncode:
        pytest.skip("user nobody cannot read this Python, its packages or this repository: left out")
    return user


def run_as(user: pwd.struct_passwd, code: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """Run `code` as `user`, with this Python or the system's of the same version and this one's packages."""
    packages = str(Path(psycopg.__file__).parents[1])
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    result = subprocess.CompletedProcess([], 1, "", "")
    for program in (sys.executable, shutil.which(version, path=os.defpath)):
        if program and result.returncode:
            try:
                result = subprocess.run(
                    [program, "-c", code, str(directory)], capture_output=True, text=True, cwd=ROOT,
                    env={"PATH": os.defpath, "PYTHONPATH": f"{ROOT}:{packages}", "PYTHONDONTWRITEBYTECODE": "1"},
                    user=user.pw_uid, group=user.pw_gid, extra_groups=[],
                )  # fmt: skip
            except PermissionError:
                continue
    return result


NO_NAMESPACES = """
import ctypes, sys
ctypes.CDLL(None).unshare(0x10000000)
print("apart", flush=True)
sys.stdin.readline()
try: open("/proc/sys/user/max_user_namespaces", "w").write("0")
except OSError: sys.exit("cannot refuse")
"""


def run_without_namespaces(code: str, directory: Path) -> str:
    """Run as root where the kernel refuses more user namespaces: in one that may have no children."""
    with subprocess.Popen(
        [sys.executable, "-c", NO_NAMESPACES + code, str(directory)], cwd=ROOT, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout
        process.stdout.readline()
        try:
            for name in ("uid_map", "gid_map"):
                Path(f"/proc/{process.pid}/{name}").write_text("0 0 65536")
        except OSError:
            process.kill()
            pytest.skip("this kernel has no user namespaces to refuse: left out")
        shown, errors = process.communicate("\n")
        if "cannot refuse" in errors:
            pytest.skip("this kernel's limit of user namespaces cannot be set: left out")
        assert not errors, errors
        return shown.strip()


@as_root
def test_where_namespaces_are_refused_another_user_runs_it(server_directory: Path) -> None:
    if run_as(pwd.getpwnam("nobody"), "", ROOT).returncode:
        pytest.skip("user nobody cannot reach the installed wheel: left out")
    server_directory.parent.chmod(0o711)
    before = permissions(server_directory)
    server = EmbeddedServer(server_directory, settings=FAST)
    server.start()  # as root first, so that the files change hands
    server.stop()
    assert run_without_namespaces(START, server_directory) == "True"
    assert server.data.stat().st_uid in (pwd.getpwnam(name).pw_uid for name in ("postgres", "nobody") if known(name))
    assert permissions(server_directory) == before
    assert not server.start()
    server.stop()
    assert server.start()


def known(name: str) -> bool:
    return any(user.pw_name == name for user in pwd.getpwall())


@as_root
def test_where_no_user_can_reach_the_folder(server: EmbeddedServer) -> None:
    server.directory.parent.chmod(0o700)
    shown = run_without_namespaces(START_OR_EXPLAIN, server.directory)
    assert "\n" not in shown
    assert f"cannot enter {server.directory.parent}" in shown
    assert "PIPELINE_DATA_DIR" in shown
    assert not server.data.exists()


def test_a_path_too_long_for_a_socket_is_refused_before_anything_is_made(server_directory: Path) -> None:
    directory = server_directory / ("x" * 100)
    with pytest.raises(EmbeddedPostgresError, match=r"allows 107.*shorter") as error:
        EmbeddedServer(directory).start()
    assert str(directory) in one_line(error)
    assert str(len(str(directory / ".s.PGSQL.5432"))) in str(error.value)
    assert not server_directory.exists()
    assert not EmbeddedServer(directory).running()


def test_the_longest_path_that_fits(server_directory: Path) -> None:
    room = 107 - len(str(server_directory / ".s.PGSQL.5432")) - 1
    server = EmbeddedServer(server_directory / ("x" * room), settings=FAST)
    prepare(server.directory, server.bin_dir)
    assert server.start()


def test_data_of_another_version(server: EmbeddedServer) -> None:
    server.data.mkdir(parents=True)
    (server.data / "PG_VERSION").write_text("12\n")
    with pytest.raises(EmbeddedPostgresError, match="PostgreSQL 12, and this is PostgreSQL 18") as error:
        server.start()
    assert str(server.data) in one_line(error)


def test_a_folder_that_is_not_postgres(server: EmbeddedServer) -> None:
    server.data.mkdir(parents=True)
    (server.data / "precious").write_text("mine")
    with pytest.raises(EmbeddedPostgresError, match="move it away"):
        server.start()
    assert (server.data / "precious").exists()


def test_a_file_in_place_of_the_folder(server: EmbeddedServer) -> None:
    server.directory.write_text("")
    with pytest.raises(EmbeddedPostgresError, match="PIPELINE_DATA_DIR") as error:
        server.start()
    assert str(server.directory) in one_line(error)


@pytest.mark.usefixtures("is_set_up")
def test_a_server_that_does_not_come_up_says_why(server_directory: Path) -> None:
    with pytest.raises(EmbeddedPostgresError, match="errors") as error:
        EmbeddedServer(server_directory, settings={"no_such_setting": "1", **FAST}).start()
    assert "postgres.log" in one_line(error)
    assert EmbeddedServer(server_directory, settings=FAST).start()


def test_a_read_only_mount(server_directory: Path) -> None:
    with tmpfs(server_directory, "size=16m,ro") as mount:
        with pytest.raises(EmbeddedPostgresError, match=r"Read-only file system.*PIPELINE_DATA_DIR") as error:
            EmbeddedServer(mount / "pg").start()
        assert str(mount / "pg") in one_line(error)


def test_a_full_disk_leaves_no_half_made_cluster(server_directory: Path) -> None:
    with tmpfs(server_directory, "size=16m") as mount:
        server = EmbeddedServer(mount / "pg", settings=FAST)
        with pytest.raises(EmbeddedPostgresError, match="No space left on device; free some space") as error:
            server.start()
        assert str(mount / "pg") in one_line(error)
        assert [path.name for path in server.directory.iterdir()] == ["lock"]
        remount(mount, "size=200m")
        assert server.start()


def test_a_disk_that_is_full_at_a_later_start(server_directory: Path) -> None:
    with tmpfs(server_directory, "size=200m") as mount:
        server = EmbeddedServer(mount / "pg", settings=FAST)
        server.start()
        server.stop()
        filler = mount / "filler"
        with pytest.raises(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        with pytest.raises(EmbeddedPostgresError, match="No space left on device; free some space") as error:
            server.start()
        assert str(mount / "pg") in one_line(error)
        filler.unlink()
        assert server.start()
