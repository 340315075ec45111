"""Switches folders of a lake on a disk to other files, each in one step: the folders that readers find by glob.

If the file system cannot exchange folders, the folders of days keep their files, and `latest` is a link. If the file
system refuses a single folder, that folder stays as it is. The ledger has the reasons, and the paths to remove later.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Collection, Iterable
from pathlib import Path

from lake.states.folders import StateFolders
from lake.storage import days, layout, replaced_files
from lake.storage.days import ExchangeRefusedError
from lake.storage.folder import unfit
from lake.storage.identity import Lake
from lake.storage.new_file import sync

_FILES = """
    select f.path from pipeline.export_files f
    where f.lake_id = $1::text::uuid and f.path like 'files/%'
        and exists (select from pipeline.exports e where e.id = f.export_id and e.state = 'committed')
"""
_OF_DATASETS = " and f.dataset = any(array(select json_array_elements_text($2::text::json)))"
_RECORD_REFUSAL = """
    update pipeline.lakes set stays = stays || jsonb_build_object($2::text, $3::text)
    where id = $1::text::uuid and stays ->> $2::text is distinct from $3::text
"""
_RECORD_SWITCH = "update pipeline.lakes set stays = stays - $2::text where id = $1::text::uuid and stays ? $2::text"
_LINKS = "update pipeline.lakes set links = true where id = $1::text::uuid and not links"


class ShownFolders:
    """The folders of a lake whose lock is held. Every OSError is raised as UnfitTargetError."""

    def __init__(self, lake: Lake) -> None:
        assert isinstance(lake.root, Path)  # noqa: S101  in a bucket nothing is found by glob
        self._lake, self._root = lake, lake.root
        self._id = str(lake.id)

    def files(self, datasets: Iterable[str] | None = None) -> dict[str, list[str]]:
        """Return the files that the ledger lists, by the folder of their day. `datasets` None: all datasets."""
        given = () if datasets is None else (json.dumps(sorted(datasets)),)
        found: dict[str, list[str]] = {}
        for row in self._lake.ledger.rows(_FILES + (_OF_DATASETS if given else ""), (self._id, *given)):
            found.setdefault(row["path"].removeprefix(f"{layout.FILES}/").rpartition("/")[0], []).append(row["path"])
        return found

    def show_files(self, folder: str, number: int | str, paths: Collection[str], *, by_renames: bool = False) -> bool:
        """Switch a folder to the names of these files and no others. Return False if the folder stays as it is.

        The old folder stays in `days` for a while. If a process that was killed has switched the folder already, only
        the old folder is recorded. `by_renames`: if the file system cannot exchange the folder, use two renames.
        """
        view = layout.day_view(folder, number)
        with unfit(self._root / folder):
            paths = [path for path in paths if (self._root / path).exists()]
            if not days.has(self._root, folder, paths):
                try:
                    if self._lake.exchange_refusal and not by_renames and os.path.lexists(self._root / folder):
                        raise ExchangeRefusedError(self._lake.exchange_refusal)
                    days.put(self._root, folder, view, paths, by_renames=by_renames)
                except ExchangeRefusedError as error:
                    days.replace_links(self._root, folder)
                    self._record_refusal(folder, str(error))
                    return False
            self.retire(view)
        self._record_switch(folder)
        return True

    def set_latest(self, dataset: str, seq: int) -> bool:
        """Show readers that version as the current state. Return False if they still find the version before."""
        version = StateFolders(self._root, dataset).version(seq)
        folder = layout.latest(dataset)
        if self._lake.exchange_refusal is None:
            with unfit(version):
                paths = [os.path.relpath(each, self._root) for each in version.iterdir()]
            return self.show_files(folder, seq, paths)
        with unfit(self._root / folder):
            return self._link(folder, version, layout.day_view(folder, seq))

    def retire(self, view: str) -> None:
        """Record that an old folder may be removed. An old link is removed at once, and its folder is recorded."""
        place = self._root / view
        if place.is_symlink():
            gone = os.path.normpath(self._root / os.path.dirname(self._former_path(view)) / os.readlink(place))
            if (path := os.path.relpath(gone, self._root)).startswith(f"{layout.DAYS}/"):
                replaced_files.record(self._lake, path)
            place.unlink()
            days.remove_empty(self._root, view)
        elif place.exists():
            replaced_files.record(self._lake, view)
        else:
            days.remove_empty(self._root, view)

    @staticmethod
    def _former_path(view: str) -> str:
        """Return the path of a link before it was exchanged: its target is relative to that path."""
        return view.split("/", 2)[2]

    def _link(self, folder: str, version: Path, view: str) -> bool:
        place = self._root / folder
        target = os.path.relpath(version, place.parent)
        if place.is_symlink() and os.readlink(place) == target:
            return True
        self._lake.ledger.execute(_LINKS, (self._id,))
        link = self._root / layout.STAGING / f"latest-{uuid.uuid4().hex}"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.is_dir() and not place.is_symlink():  # the lake was moved here
            (self._root / view).parent.mkdir(parents=True, exist_ok=True)
            try:
                os.rename(place, self._root / view)
            except OSError as error:
                self._record_refusal(folder, error.strerror or str(error))
                return False
        os.replace(link, place)
        sync(place.parent)
        self.retire(view)
        self._record_switch(folder)
        return True

    def _record_refusal(self, folder: str, reason: str) -> None:
        if self._lake.exchange_refusal is None or not folder.startswith(("changes/", layout.MESSAGES)):
            self._lake.ledger.execute(_RECORD_REFUSAL, (self._id, folder, reason))

    def _record_switch(self, folder: str) -> None:
        self._lake.ledger.execute(_RECORD_SWITCH, (self._id, folder))
