"""Choose where a process stores the data of jobs: on this machine, or in storage that others share."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from agent_runtime import SessionError
from bot.apps.keys import key_for
from bot.domain.errors import ConfigError
from bot.jobs.patches import PatchBlobs, PatchFiles, PatchStore
from bot.jobs.sessions import DatabaseJobSessions, FileJobSessions, JobSessions
from bot.settings.agent import AgentSettings
from bot.settings.model import Settings
from bot.workspace.blob_address import open_blobs
from bot.workspace.blobs import BlobAccess, BlobStore
from bot.workspace.snapshots import Snapshots
from bot.workspace.vault import Vault

log = logging.getLogger(__name__)

_FOLDER = "patches"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStorage:
    """Keeps what outlives an attempt at a job.

    Attributes:
        sessions: the logs of runs; None where no job waits for a person.
        patches: the changes of runs.
        snapshots: the files of jobs that wait, for other machines; None where these cannot reach them.
        lasting_patches: whether the patches of published work stay, too, for the dashboard.
    """

    sessions: JobSessions | None
    patches: PatchStore
    snapshots: Snapshots | None = None
    lasting_patches: bool = False


def storage_of(settings: Settings) -> JobStorage:
    """What a service keeps where.

    Raises:
        ConfigError: the blob store needs what is not installed.
        SessionError: the database cannot be used.
        StorageError: the directory of the blob store cannot be made.
    """
    sessions: JobSessions = files_of(settings.agent)
    if settings.shared_database is not None:
        sessions = DatabaseJobSessions(settings.shared_database)
        try:
            sessions.prepare()
        except SessionError as error:
            raise SessionError(f"The database named by CODEPILOT_DATABASE_URL cannot be used. {error}") from error
        if settings.storage_url is None:
            log.warning(
                "CODEPILOT_DATABASE_URL is a server's address and CODEPILOT_STORAGE_URL is not set: workers on other "
                "machines cannot continue the jobs that wait on this one. Example: CODEPILOT_STORAGE_URL=s3://my-bucket/bot"
            )
    blobs = None if settings.storage_url is None else blobs_of(settings, settings.storage_url)
    snapshots = None if blobs is None else Snapshots(blobs=blobs, key=key_for(settings.webhook_secret, "snapshots"))
    return JobStorage(
        sessions=sessions,
        patches=_patches_in(blobs, settings),
        snapshots=snapshots,
        lasting_patches=settings.has_dashboard,
    )


def patches_of(settings: Settings) -> PatchStore:
    """Where a service keeps patches: in the blob store that the operator names, or in files that the operator can read.

    Raises:
        ConfigError: the blob store needs what is not installed.
        StorageError: the directory of the blob store cannot be made.
    """
    blobs = None if settings.storage_url is None else blobs_of(settings, settings.storage_url)
    return _patches_in(blobs, settings)


def _patches_in(blobs: BlobStore | None, settings: Settings) -> PatchStore:
    folder = settings.agent.data_dir / _FOLDER
    if blobs is None:
        return PatchFiles(folder)
    return PatchBlobs(Vault(blobs=blobs, folder=_FOLDER, key=key_for(settings.webhook_secret, "patches")), folder)


def blobs_of(settings: Settings, url: str) -> BlobStore:
    """The blob store at an address, reached with the operator's key.

    Raises:
        ConfigError: the blob store needs what is not installed.
        StorageError: the directory of the blob store cannot be made.
    """
    access = BlobAccess(
        access_key_id=settings.aws_access_key_id or "",
        secret_access_key=settings.aws_secret_access_key,
        session_token=settings.aws_session_token,
        region=settings.aws_region or "",
        endpoint=settings.aws_endpoint_url or "",
    )
    return open_blobs(url, access)


def make_data_directory(agent: AgentSettings) -> None:
    """Make the directory that everything else is in, unless it is there.

    Raises:
        ConfigError: it cannot be made.
    """
    try:
        agent.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        why = f"CODEPILOT_DATA_DIR is {agent.data_dir}, which cannot be created: {error.strerror}"
        raise ConfigError((f"{why}. Create it for the bot's user, or name another directory.",)) from error


def local_storage(agent: AgentSettings) -> JobStorage:
    """What a workflow's step keeps: only patches, on the runner."""
    return JobStorage(sessions=None, patches=PatchFiles(agent.data_dir / _FOLDER))


def files_of(agent: AgentSettings) -> FileJobSessions:
    """The sessions of jobs that only this machine continues."""
    return FileJobSessions(agent.data_dir / "sessions")
