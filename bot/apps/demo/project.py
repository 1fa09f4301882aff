"""The project that the demo repairs: fetched as its authors released it, with one of its old bugs put back in."""

from __future__ import annotations

import asyncio
import sys
import tarfile
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from bot.apps.demo.own import DemoError, copied
from bot.workspace.git import Git

_SDIST = "boltons==26.2.0"
_SHA256 = "d39cfd15c1a1c3bd4d705c82252fa9edb8e4f5e8cc039f8e39afac7b1b47e92c"
_DATE = "2026-09-07T12:00:00Z"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A repository, and what is wrong with it.

    Attributes:
        full_name: the name that the repository gets on the hub.
        path: a local git repository.
        title: the issue's title.
        body: the issue's text, Markdown.
        request: the comment that sets the bot to work.
        test_command: what shows that it is fixed; None when only the agent knows.
    """

    full_name: str
    path: Path
    title: str
    body: str
    request: str
    test_command: str | None


async def boltons(directory: Path) -> Scenario:
    """Fetch the project, put the bug back in, and make a git repository of it.

    Args:
        directory: where it is unpacked; must exist.

    Raises:
        DemoError: the package index cannot be reached, or the download is not what it should be.
    """
    # Have pip fetch the source distribution, pinned by hash.
    wanted = directory / "project.txt"
    wanted.write_text(f"{_SDIST} --hash=sha256:{_SHA256}\n", encoding="utf-8")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"),
        *("--no-binary", ":all:", "--require-hashes", "--dest", str(directory), "--requirement", str(wanted)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await process.communicate()
    if process.returncode:
        last = (said.decode(errors="replace").strip().splitlines() or ["no reason given"])[-1]
        raise DemoError(
            f"pip could not download {_SDIST} from the package index: {last}\nThe demo needs the index once; or use "
            "your own repository: codepilot demo --repo PATH --issue TEXT"
        )
    archive = directory / f"{_SDIST.replace('==', '-')}.tar.gz"
    source = await asyncio.to_thread(_unpack, archive, directory)
    git = Git(git_dir=source / ".git", work_tree=source)
    await git.run("init", "--quiet", "--initial-branch=main", str(source))
    patch = files(__package__).joinpath("boltons-26.2.0.patch").read_bytes()
    await Git().run("-C", str(source), "apply", "-", stdin=patch)
    identity = {
        f"GIT_{who}_{what}": value
        for who in ("AUTHOR", "COMMITTER")
        for what, value in (("NAME", "Mona"), ("EMAIL", "mona@users.noreply.github.com"), ("DATE", _DATE))
    }
    message = "Release 26.2.0, with the old way of reading fractional seconds"
    await git.run("add", "--all", "--force")
    await git.run("commit", "--quiet", "--no-verify", "-m", message, variables=identity)
    title, _, body = files(__package__).joinpath("issue.md").read_text(encoding="utf-8").partition("\n")
    return Scenario(
        full_name="mona/boltons",
        path=source,
        title=title,
        body=body.strip(),
        request="/codepilot fix isoparse so that tests/test_timeutils.py passes",
        test_command="python -m pytest -q tests/test_timeutils.py",
    )


async def local(repository: Path, issue: str, directory: Path) -> tuple[Scenario, str]:
    """A copy of a git repository of the user's own.

    Args:
        repository: an absolute path of a directory in it.
        issue: what is wrong; the first line is the title.
        directory: where the copy is made; must exist.

    Returns:
        The scenario, and what of the repository is not in it, as a sentence; empty when nothing is missing.

    Raises:
        DemoError: there is no git repository with a commit that can be read.
    """
    title, _, body = issue.strip().partition("\n")
    if not title:
        raise DemoError("--issue is empty; describe the problem, e.g. --issue 'total() ignores the discount'")
    copy = await copied(repository, directory / "own.git")
    scenario = Scenario(
        full_name=f"mona/{copy.name}",
        path=copy.path,
        title=title,
        body=body.strip(),
        request="/codepilot fix",
        test_command=None,
    )
    return scenario, copy.note


def _unpack(archive: Path, directory: Path) -> Path:
    target = directory / "project"
    with tarfile.open(archive) as tar:
        # Python 3.11.3 and older know no filters; the archive's hash is pinned, so nothing unexpected is in it.
        tar.extraction_filter = getattr(tarfile, "data_filter", lambda member, _path: member)
        tar.extractall(target)  # noqa: S202 - see above
    [source] = target.iterdir()
    return source
