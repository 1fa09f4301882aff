"""Kill the processes of a real service while they work on many jobs. Usage: make chaos ARGS="--kills 20 --jobs 60".

The hub runs in this process, the model is a script, every job is a fix in an issue of its own. On SQLite one
`codepilot serve` does everything. On PostgreSQL two `codepilot serve --no-work` receive and three `codepilot work` do
the jobs, each with a data directory of its own; they share the database and a blob store.

After a number of requests to the hub that the seed gives, one process of the seed's choice ends: by SIGKILL, by
SIGTERM, or as a worker of PostgreSQL whose machine is suspended: it is stopped, the server ends its sessions, others
take its jobs over, and it goes on. Then it is started again, and sometimes killed once more while it starts. Commands
are given all the time. In the end every one of them must have exactly one comment, one commit in one pull request, and
one check run that is completed.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from bench.chaos.storm import Plan, Shared, run
from tests import postgres, s3


def main() -> int:
    """Read the options, and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("--store", choices=["sqlite", "postgresql", "both"], default="both")
    parser.add_argument("--blobs", choices=["s3", "directory"], default="s3", help="beside PostgreSQL")
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="a directory for the logs, which stays")
    chosen = parser.parse_args()
    plan = Plan(kills=chosen.kills, jobs=chosen.jobs, seed=chosen.seed)
    faults = []
    for store in ("sqlite", "postgresql") if chosen.store == "both" else (chosen.store,):
        with ExitStack() as stack:
            place = stack.enter_context(tempfile.TemporaryDirectory(prefix="chaos-"))
            directory = (chosen.keep or Path(place)) / store
            directory.mkdir(parents=True)
            print(f"{store}: {plan.jobs} jobs, {plan.kills} ends, seed {plan.seed}", flush=True)
            shared = None if store == "sqlite" else _shared(stack, chosen.blobs, directory)
            storm = asyncio.run(run(plan, directory, shared))
            print(f"{store}: {storm}", flush=True)
            faults += storm.faults
    return min(1, len(faults))


def _shared(stack: ExitStack, blobs: str, directory: Path) -> Shared:
    programs = postgres.programs()
    if programs is None:
        sys.exit("PostgreSQL is not installed (scripts/system-programs dev installs it)")
    server = stack.enter_context(postgres.running(programs))
    if blobs == "directory":
        return Shared(database_url=server.url(), blobs={"CODEPILOT_STORAGE_URL": (directory / "blobs").as_uri()})
    access = stack.enter_context(s3.running()).access
    bucket = {
        "CODEPILOT_STORAGE_URL": f"s3://{s3.BUCKET}/chaos",
        "AWS_ACCESS_KEY_ID": access.access_key_id,
        "AWS_SECRET_ACCESS_KEY": s3.KEY,
        "AWS_REGION": access.region,
        "AWS_ENDPOINT_URL": access.endpoint,
    }
    return Shared(database_url=server.url(), blobs=bucket)


if __name__ == "__main__":
    sys.exit(main())
