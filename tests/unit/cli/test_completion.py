"""Tab in the shells: a real bash with the script that it gets, and what zsh and fish are answered."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.cli import main as cli
from tests.fixtures.server import run_command

PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
TABS = {
    "pipeline st": {"status"},
    "pipeline slots --slot x --source-dsn y lis": {"list"},
    "pipeline status --slot x --js": {"--json"},
    "pipeline serve --http-p": {"--http-port"},
    "pipeline --version --http-port 1 dead-letters re": {"retry"},
    "pipeline status --show-c": set(),
    "pipeline followers re": {"resume", "remove", "release", "resync"},
    "pipeline followers add --copy lo": {"log"},
}


@pytest.mark.parametrize("line", TABS)
def test_commands_options_and_settings_behind_them_are_completed(
    line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "setproctitle", lambda _: None)
    monkeypatch.setattr(sys, "argv", ["pipeline"])
    monkeypatch.setenv("_PIPELINE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split()) - 1))
    with pytest.raises(SystemExit):
        cli.main()
    shown = capsys.readouterr()
    assert (set(shown.out.split()), shown.err) == (TABS[line], "")


def test_the_script_for_bash_asks_the_program(tmp_path: Path) -> None:
    tab = 'COMP_WORDS=(pipeline status --slot x --js); COMP_CWORD=4; _pipeline_completion pipeline; echo "$COMPREPLY"'
    done = in_bash(f'eval "$(pipeline --show-completion)"\n{tab}', tmp_path)
    assert (done.stdout, done.stderr) == ("--json\n", "")


def test_it_is_installed_for_the_shell_that_asks(tmp_path: Path) -> None:
    done = in_bash("pipeline --install-completion; exit $?", tmp_path)
    assert done.returncode == 0, done
    assert (
        "complete -o default -F _pipeline_completion pipeline"
        in (tmp_path / ".bash_completions" / "pipeline.sh").read_text()
    )
    assert ".bash_completions/pipeline.sh" in (tmp_path / ".bashrc").read_text()


@pytest.mark.parametrize(
    ("shell", "answer"),
    [
        ("zsh", """_arguments '*: :(("--json":"Print JSON."))'\n"""),
        pytest.param("fish", "--json\tPrint JSON.\n", marks=pytest.mark.long),
    ],
)
def test_other_shells_are_answered_too(
    shell: str, answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_PIPELINE_COMPLETE", f"complete_{shell}")
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", "pipeline status --slot x --js")
    done = run_command(folder=tmp_path)
    assert (done.stdout, done.stderr) == (answer, "")


def in_bash(script: str, home: Path) -> subprocess.CompletedProcess[str]:
    """A script in a bash that knows no files of a user's."""
    return subprocess.run(
        ["bash", "--norc", "-c", script],
        env={"PATH": PATH, "HOME": str(home)},
        cwd=home,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
