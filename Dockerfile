# The bot as a service: `docker build -t codepilot .`, and docs/server.md for how to run it.
#
# Commands of the agent run in bubblewrap, which needs user namespaces. Docker's default profiles refuse them, and the
# bot then refuses to start rather than run a job without a sandbox. Start the container with
#   --security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined
# and on hosts that restrict user namespaces (Ubuntu 24.04 and newer) with the AppArmor profile that the bot names.
# It never needs --privileged, and never the Docker socket.

FROM python:3.13-slim-trixie AS build
WORKDIR /source
COPY requirements/run.lock requirements/
RUN python -m venv /opt/codepilot \
 && /opt/codepilot/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes -r requirements/run.lock
COPY pyproject.toml README.md LICENSE ./
COPY agent_runtime agent_runtime
COPY bot bot
COPY localhub localhub
RUN /opt/codepilot/bin/pip install --no-cache-dir --disable-pip-version-check --no-deps --no-build-isolation .

FROM python:3.13-slim-trixie
# No versions: Debian keeps one of each in a release, and takes the old one away.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends bubblewrap ca-certificates git tini \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --system --uid 10001 --home-dir /var/lib/codepilot --create-home --shell /usr/sbin/nologin codepilot
COPY --from=build /opt/codepilot /opt/codepilot
ENV PATH=/opt/codepilot/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    CODEPILOT_HOST=0.0.0.0 \
    CODEPILOT_PORT=8080 \
    CODEPILOT_DATA_DIR=/var/lib/codepilot
USER 10001
WORKDIR /var/lib/codepilot
VOLUME /var/lib/codepilot
EXPOSE 8080
# A worker answers at its port for metrics only. What asks goes through no proxy that the environment names.
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s --retries=3 \
  CMD ["python", "-c", "import os, urllib.request as r; r.build_opener(r.ProxyHandler({})).open('http://127.0.0.1:' + (os.environ.get('CODEPILOT_METRICS_PORT') or os.environ['CODEPILOT_PORT']) + '/healthz', timeout=4)"]
ENTRYPOINT ["tini", "--", "codepilot"]
CMD ["serve"]
