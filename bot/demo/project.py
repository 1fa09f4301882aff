"""The repository of the demo: boltons with an old bug, or a copy of the user's own."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tarfile
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path

from bot.domain.errors import BotError
from bot.git.errors import GitError
from bot.git.process import Git

_SDIST = "boltons==26.2.0"
_SHA256 = "d39cfd15c1a1c3bd4d705c82252fa9edb8e4f5e8cc039f8e39afac7b1b47e92c"
_DATE = "2026-09-07T12:00:00+0000"
_MESSAGE = "Release 26.2.0, with the old way of reading fractional seconds\n"
_INITIAL_BRANCH = "main"
_HEADS = "refs/heads/"
_FORBIDDEN = re.compile(r"[^A-Za-z0-9._-]+")


class DemoError(BotError):
    """The demo cannot be set up; the text has the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A repository, and the bug to fix.

    Attributes:
        test_command: None if only the agent knows the tests.
    """

    full_name: str
    path: Path
    title: str
    body: str
    request: str
    test_command: str | None


async def prepare_boltons(directory: Path) -> Scenario:
    """Download the project into a directory, restore the bug, and commit it.

    Raises:
        DemoError: the package index cannot be reached, or the download is different.
    """
    # Have pip fetch the source distribution, pinned by hash.
    requirements = directory / "project.txt"
    requirements.write_text(f"{_SDIST} --hash=sha256:{_SHA256}\n", encoding="utf-8")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"),
        *("--no-binary", ":all:", "--require-hashes", "--dest", str(directory), "--requirement", str(requirements)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, stderr = await process.communicate()
    if process.returncode:
        last = (stderr.decode(errors="replace").strip().splitlines() or ["no reason given"])[-1]
        raise DemoError(
            f"pip could not download {_SDIST} from the package index: {last}\nThe demo needs the index once; or use "
            "your own repository: codepilot demo --repo PATH --issue TEXT"
        )
    archive = directory / f"{_SDIST.replace('==', '-')}.tar.gz"
    source = await asyncio.to_thread(_unpack, archive, directory)
    await asyncio.to_thread(_commit_with_bug, source)
    title, _, body = files(__package__).joinpath("issue.md").read_text(encoding="utf-8").partition("\n")
    return Scenario(
        full_name="mona/boltons",
        path=source,
        title=title,
        body=body.strip(),
        request="/codepilot fix isoparse so that tests/test_timeutils.py passes",
        test_command="python -m pytest -q tests/test_timeutils.py",
    )


def _commit_with_bug(source: Path) -> None:
    import git  # noqa: PLC0415 - starts two processes when it is imported

    isolated = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
    author = git.Actor("Mona", "mona@users.noreply.github.com")
    with (
        as_file(files(__package__).joinpath("boltons-26.2.0.patch")) as patch,
        git.Repo.init(source, initial_branch="main", env=isolated) as repo,
    ):
        repo.git.update_environment(**isolated)
        repo.git.apply(patch)
        repo.git.add(all=True, force=True)
        repo.index.commit(
            _MESSAGE, [], author=author, committer=author, author_date=_DATE, commit_date=_DATE, skip_hooks=True
        )


def _unpack(archive: Path, directory: Path) -> Path:
    target = directory / "project"
    with tarfile.open(archive) as tar:
        # Python 3.11.3 and older know no filters; the archive's hash is pinned, so nothing unexpected is in it.
        tar.extraction_filter = getattr(tarfile, "data_filter", lambda member, _path: member)
        tar.extractall(target)  # noqa: S202 - see above
    [source] = target.iterdir()
    return source


async def prepare_local(repository: Path, issue: str, directory: Path) -> tuple[Scenario, str]:
    """Copy a user's repository; return the scenario and a sentence about missing parts, or an empty one.

    Raises:
        DemoError: there is no readable repository with a commit.
    """
    title, _, body = issue.strip().partition("\n")
    if not title:
        raise DemoError("--issue is empty; describe the problem, e.g. --issue 'total() ignores the discount'")
    copy = await copy_repository(repository, directory / "own.git")
    scenario = Scenario(
        full_name=f"mona/{copy.name}",
        path=copy.path,
        title=title,
        body=body.strip(),
        request="/codepilot fix",
        test_command=None,
    )
    return scenario, copy.note


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryCopy:
    """A bare copy of a repository; `note` is a sentence about missing parts, or empty."""

    path: Path
    name: str
    note: str = ""


async def copy_repository(repository: Path, target: Path) -> RepositoryCopy:
    """Copy the current branch or commit, if possible with history.

    Raises:
        DemoError: there is no usable commit.
    """
    try:
        is_bare = (await Git().run("-C", repository, "rev-parse", "--is-bare-repository")).strip() == b"true"
        option = "--absolute-git-dir" if is_bare else "--show-toplevel"
        output = await Git().run("-C", repository, "rev-parse", option)
    except GitError as error:
        if "dubious ownership" in error.stderr:
            raise DemoError(
                f"{repository} belongs to another user, and git refuses to read it. Run the demo as that user, or on "
                f"your own copy: cp -r {repository} COPY"
            ) from error
        raise DemoError(f"{repository} is not a git repository; try: git init && git commit") from error
    top = Path(output.decode("utf-8", "surrogateescape").removesuffix("\n"))
    if not await _ask_git(top, "rev-parse", "--verify", "--quiet", "HEAD^{commit}"):
        raise DemoError(f"{repository} has no commit yet; create one first: git commit")
    head = await _ask_git(top, "symbolic-ref", "--quiet", "HEAD")  # nothing where HEAD is detached
    branch = head.removeprefix(_HEADS) or _INITIAL_BRANCH
    copy = Git(git_dir=target)
    await copy.run("init", "--quiet", "--bare", f"--initial-branch={branch}", target)
    name = repo_name(top)
    reason = "the clone is shallow" if await _ask_git(top, "rev-parse", "--is-shallow-repository") == "true" else ""
    if not reason:
        try:
            await copy.run("fetch", "--quiet", "--no-tags", top, f"+HEAD:{_HEADS}{branch}")
        except GitError as error:  # e.g. of another object format, or without some old files
            reason = _last_line(error.stderr)
    if reason:
        await _import_last_commit(top, target, branch)
    return RepositoryCopy(
        path=target, name=name, note=f"Only the last commit is used, without history: {reason}." if reason else ""
    )


def repo_name(path: Path) -> str:
    return _FORBIDDEN.sub("-", path.name.removesuffix(".git")).strip("-.") or "project"


async def _ask_git(top: Path, *args: str) -> str:
    return (await Git().run("-C", top, *args, expect=(0, 1, 128))).decode("utf-8", "surrogateescape").strip()


async def _import_last_commit(top: Path, git_dir: Path, branch: str) -> None:
    """Import the last commit without its parents."""
    stream = git_dir / "demo.import"
    try:
        # Without `--full-tree`, the files of the parents would be missing; without `--reencode`, old messages abort.
        await Git().run(
            *("-C", top, "fast-export", "--full-tree", "--reencode=yes", f"--refspec=HEAD:{_HEADS}{branch}", "HEAD^!"),
            stdout=stream,
        )
        await Git(git_dir=git_dir).run("fast-import", "--quiet", stdin=stream)
    except GitError as error:
        raise DemoError(
            f"The files of the last commit of {top} cannot be read: {_last_line(error.stderr)}. If it is a partial "
            f"clone, fetch them first: git -C {top} checkout HEAD -- ."
        ) from error
    finally:
        stream.unlink(missing_ok=True)


def _last_line(stderr: str) -> str:
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    return lines[-1].removeprefix("fatal: ").rstrip(".") if lines else "it does not say why"
