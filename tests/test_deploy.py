"""The files of `deploy/`: as their tools take them, and every name in them leads somewhere."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import kubernetes_validate
import psycopg
import pytest
import yaml

from bot.__main__ import cli
from bot.domain.job import JobState
from bot.github.connection import AppSession
from bot.queue.engine import DurableEngine
from bot.queue.memory import InMemoryEngine
from bot.queue.store import JobStore
from bot.server.observability import Metrics
from bot.server.process import ENDING_SECONDS
from bot.settings.models import PREFIX, SETTINGS, Settings, settings_of
from tests.builders import a_job
from tests.postgres import postgres_server, postgres_url
from tests.source_files import ROOT

__all__ = ["postgres_server", "postgres_url"]

_COMPOSE = ROOT / "deploy/compose"
_KUBERNETES = ROOT / "deploy/kubernetes"
_UNIT = ROOT / "deploy/systemd/codepilot.service"
_COMPONENTS = ("ingress", "keda", "hpa", "trial-postgres")
_MANIFESTS = sorted(path for path in _KUBERNETES.rglob("*.yaml") if path.name != "kustomization.yaml")
_OTHERS = {"SSL_CERT_FILE"}  # of the programs below us
_KILL_SECONDS = 5.0  # of the watchdog, after it has told why
_SECRET_FILES = {f"{each.name}_FILE" for each in SETTINGS if each.secret} | {"CODEPILOT_PRIVATE_KEY_FILE"}


def compose(*names: str) -> dict[str, Any]:
    """The file, or several merged as far as the tests look."""
    merged: dict[str, Any] = {}
    for name in names:
        _merge(merged, yaml.safe_load((_COMPOSE / name).read_text(encoding="utf-8")))
    return merged


def _merge(into: dict[str, Any], more: Mapping[str, Any]) -> None:
    for key, value in more.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        elif isinstance(value, list) and isinstance(into.get(key), list):
            into[key] = [*into[key], *value]
        else:
            into[key] = value


def manifests(*paths: Path) -> list[dict[str, Any]]:
    return [each for path in paths for each in yaml.safe_load_all(path.read_text(encoding="utf-8"))]


def base_and(component: str) -> list[dict[str, Any]]:
    """What is applied with one of the components, after their kustomizations."""
    found = []
    for folder in (_KUBERNETES / "base", _KUBERNETES / "components" / component):
        [kustomization] = manifests(folder / "kustomization.yaml")
        listed = {folder / name for name in kustomization["resources"]}
        assert listed == {path for path in _MANIFESTS if path.parent == folder}, f"{folder} lists other files"
        found += manifests(*sorted(listed))
    return found


def of_kind(kind: str, among: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {each["metadata"]["name"]: each for each in among if each["kind"] == kind}


def pods(among: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The templates of pods, by their names."""
    sets = [*of_kind("Deployment", among).items(), *of_kind("StatefulSet", among).items()]
    return {name: each["spec"]["template"] for name, each in sets}


def bots() -> Iterator[tuple[str, dict[str, str], list[str], float]]:
    """Each container of the bot: its name, variables, arguments, and the seconds that it is given to end."""
    for files in (("compose.yaml",), ("compose.yaml", "s3.yaml")):
        for name in ("receiver", "worker"):
            service = compose(*files)["services"][name]
            seconds = float(service["stop_grace_period"].removesuffix("s"))
            yield f"{files[-1]} {name}", service["environment"], service["command"], seconds
    among = manifests(*_MANIFESTS)
    for name in ("codepilot-receiver", "codepilot-worker"):
        spec = pods(among)[name]["spec"]
        [container] = spec["containers"]
        [maps] = container["envFrom"]
        variables = dict(of_kind("ConfigMap", among)[maps["configMapRef"]["name"]]["data"])
        variables |= {each["name"]: each["value"] for each in container.get("env", ())}
        yield name, variables, container["args"], float(spec["terminationGracePeriodSeconds"])


_BOTS = {name: (variables, command, seconds) for name, variables, command, seconds in bots()}


@pytest.mark.parametrize("path", sorted(_COMPOSE.glob("*.yaml")), ids=lambda path: str(path.name))
def test_compose_takes_the_file(path: Path) -> None:
    argv = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_everything_that_a_service_mentions_is_declared() -> None:
    for files in (("compose.yaml",), ("compose.yaml", "s3.yaml")):
        whole = compose(*files)
        for name, service in whole["services"].items():
            assert set(service.get("secrets", ())) <= set(whole["secrets"]), name
            assert {volume.partition(":")[0] for volume in service.get("volumes", ())} <= set(whole["volumes"]), name
            assert set(service.get("networks", ())) <= {*whole["networks"], "default"}, name
            assert set(service.get("depends_on", ())) <= set(whole["services"]), name
            for value in service["environment"].values():
                if value.startswith("/run/secrets/"):
                    assert Path(value).name in service["secrets"], f"{name} has no secret for {value}"
    for secret in compose("compose.yaml", "s3.yaml")["secrets"].values():
        ignored = (_COMPOSE / ".gitignore").read_text(encoding="utf-8").splitlines()
        assert f"{Path(secret['file']).parent}/" in ignored


@pytest.mark.parametrize("name", _BOTS)
def test_the_bot_knows_the_settings_and_their_values(name: str) -> None:
    variables, _, _ = _BOTS[name]
    known = {each.name: each for each in SETTINGS}
    for variable, value in variables.items():
        if variable in _SECRET_FILES:
            assert value.startswith("/run/secrets/")
        elif variable not in _OTHERS:
            assert variable in known, f"{variable} is no setting"
            known[variable].parse(re.sub(r"\$\{.*\}", known[variable].example, value))
    required = {each.name for each in settings_of(Settings).values() if each.default is None}
    assert {each for each in required if not {each, f"{each}_FILE"} & set(variables)} == set()
    assert not [each for each in variables if each in known and known[each].secret], "secrets are files"


@pytest.mark.parametrize("name", _BOTS)
def test_the_bot_knows_the_command_and_has_the_time_to_drain(name: str) -> None:
    variables, (command, *options), seconds = _BOTS[name]
    cli.commands[command].make_context(command, list(options))
    drain = variables.get(f"{PREFIX}DRAIN_SECONDS") or settings_of(Settings)["drain_seconds"].default
    assert drain is not None
    assert seconds > float(drain) + ENDING_SECONDS + _KILL_SECONDS


def test_a_container_lets_bubblewrap_work_exactly_where_agents_run() -> None:
    options = set(re.findall(r"--security-opt (\S+)", (ROOT / "Dockerfile").read_text(encoding="utf-8")))
    services = compose("compose.yaml")["services"]
    assert set(services["worker"]["security_opt"]) == options
    assert not options & set(services["receiver"]["security_opt"])
    unconfined = {"type": "Unconfined"}
    templates = pods(manifests(*_MANIFESTS))
    for name, template in templates.items():
        spec, works = template["spec"], name == "codepilot-worker"
        [container] = spec["containers"]
        assert (spec["securityContext"]["seccompProfile"] == unconfined) is works
        assert (spec["securityContext"].get("appArmorProfile") == unconfined) is works
        assert (container["securityContext"].get("procMount") == "Unmasked") is works
        assert (spec.get("hostUsers") is False) is works, "procMount: Unmasked needs a user namespace of the pod"
        assert spec["securityContext"]["runAsNonRoot"]
        assert not container["securityContext"]["allowPrivilegeEscalation"]
        assert not container["securityContext"].get("privileged")


@pytest.mark.parametrize("path", _MANIFESTS, ids=lambda path: str(path.relative_to(_KUBERNETES)))
def test_kubernetes_takes_the_manifest(path: Path) -> None:
    for each in manifests(path):
        _validate(each)


def _validate(manifest: dict[str, Any]) -> None:
    if not manifest["apiVersion"].startswith("keda.sh/"):  # a resource of its own; see below
        kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)


@pytest.mark.parametrize("component", _COMPONENTS)
def test_every_reference_of_a_manifest_leads_somewhere(component: str) -> None:
    among = base_and(component)
    templates = pods(among)
    labels = {name: template["metadata"]["labels"] for name, template in templates.items()}

    def selected(selector: Mapping[str, str]) -> list[str]:
        return [name for name, own in labels.items() if selector.items() <= own.items()]

    for name, template in templates.items():
        owner = of_kind("Deployment", among).get(name) or of_kind("StatefulSet", among)[name]
        assert selected(owner["spec"]["selector"]["matchLabels"]) == [name]
        [container] = template["spec"]["containers"]
        claims = [each["metadata"]["name"] for each in owner["spec"].get("volumeClaimTemplates", ())]
        volumes = {each["name"] for each in template["spec"]["volumes"]} | set(claims)
        assert {each["name"] for each in container["volumeMounts"]} == volumes
        ports = {each["name"] for each in container["ports"]}
        probes = [container.get(each, {}) for each in ("livenessProbe", "readinessProbe", "startupProbe")]
        assert {each["httpGet"]["port"] for each in probes if "httpGet" in each} <= ports
    for service in of_kind("Service", among).values():
        [name] = selected(service["spec"]["selector"])
        [container] = templates[name]["spec"]["containers"]
        assert service["spec"]["ports"][0]["targetPort"] in {each["name"] for each in container["ports"]}
    for budget in of_kind("PodDisruptionBudget", among).values():
        assert len(selected(budget["spec"]["selector"]["matchLabels"])) == 1
    for policy in of_kind("NetworkPolicy", among).values():
        chosen = selected(policy["spec"]["podSelector"]["matchLabels"])
        let_in = {each["port"] for rule in policy["spec"]["ingress"] for each in rule["ports"]}
        assert chosen
        for name in chosen:
            [container] = templates[name]["spec"]["containers"]
            assert {each["name"] for each in container["ports"]} == let_in
    for ingress in of_kind("Ingress", among).values():
        [path] = ingress["spec"]["rules"][0]["http"]["paths"]
        assert path["path"] == "/webhook", "probes and metrics are not public"
        backend = path["backend"]["service"]
        assert backend["port"]["name"] in {
            each["name"] for each in of_kind("Service", among)[backend["name"]]["spec"]["ports"]
        }
    for scaled in (*of_kind("ScaledObject", among).values(), *of_kind("HorizontalPodAutoscaler", among).values()):
        assert scaled["spec"]["scaleTargetRef"]["name"] in of_kind("Deployment", among)
        assert "replicas" not in of_kind("Deployment", among)[scaled["spec"]["scaleTargetRef"]["name"]]["spec"]


def test_one_secret_has_everything_that_is_mounted_and_authenticates_the_autoscaler() -> None:
    among = manifests(*_MANIFESTS)
    secrets: dict[str, set[str]] = {}
    for name in ("codepilot-receiver", "codepilot-worker"):
        spec = pods(among)[name]["spec"]
        [secret] = [each["secret"] for each in spec["volumes"] if "secret" in each]
        [mount] = [each for each in spec["containers"][0]["volumeMounts"] if each["name"] == "secrets"]
        files = {Path(value) for variable, value in _BOTS[name][0].items() if variable in _SECRET_FILES}
        assert {path.parent for path in files} == {Path(mount["mountPath"])}
        assert secret["defaultMode"] & 0o007 == 0, "the bot refuses files that every user can read"
        secrets.setdefault(secret["secretName"], set()).update(path.name for path in files)
    [authentication] = of_kind("TriggerAuthentication", among).values()
    [parameter] = authentication["spec"]["secretTargetRef"]
    [(mounted, keys)] = secrets.items()
    assert (parameter["name"], parameter["parameter"]) == (mounted, "connection")
    assert parameter["key"] in keys
    assert not of_kind("Secret", among), "secrets are the operator's"


async def test_the_autoscaler_counts_the_jobs_that_need_a_worker(postgres_url: str) -> None:
    [scaled] = of_kind("ScaledObject", manifests(*_MANIFESTS)).values()
    [trigger] = scaled["spec"]["triggers"]
    assert trigger["authenticationRef"]["name"] in of_kind("TriggerAuthentication", manifests(*_MANIFESTS))
    store = JobStore(postgres_url)
    engine = DurableEngine(store)
    for number in range(3):
        await engine.accept(a_job(f"job-{number}", number=number, comment_id=number))
    await engine.cancel("job-0", JobState.STOPPED, "nobody needs it")
    await store.close()
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute(trigger["metadata"]["query"]).fetchone() == (2,)


def test_the_autoscaler_reaches_the_database_for_trying() -> None:
    among = base_and("trial-postgres")
    [policy] = [each for name, each in of_kind("NetworkPolicy", among).items() if name == "codepilot-postgres"]
    [rule] = policy["spec"]["ingress"]
    assert {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "keda"}}} in rule["from"]


async def test_an_autoscaler_gives_a_worker_as_many_jobs_as_it_runs() -> None:
    among = manifests(*_MANIFESTS)
    options = pods(among)["codepilot-worker"]["spec"]["containers"][0]["args"]
    jobs = options[options.index("--concurrency") + 1]
    [scaled] = of_kind("ScaledObject", among).values()
    assert scaled["spec"]["triggers"][0]["metadata"]["targetQueryValue"] == jobs
    [autoscaler] = of_kind("HorizontalPodAutoscaler", among).values()
    external = autoscaler["spec"]["metrics"][0]["external"]
    assert external["target"]["averageValue"] == jobs
    [states] = external["metric"]["selector"]["matchExpressions"]
    told = (await Metrics().render(InMemoryEngine(), AppSession(0.0))).decode()
    for state in states["values"]:
        assert f'{external["metric"]["name"]}{{{states["key"]}="{state}"}}' in told


def unit() -> dict[str, list[str]]:
    """The values of each key of the systemd unit."""
    values: dict[str, list[str]] = {}
    for line in _UNIT.read_text(encoding="utf-8").splitlines():
        if "=" in line and not line.startswith("#"):
            key, _, value = line.partition("=")
            values.setdefault(key, []).append(value)
    return values


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    text = _UNIT.read_text(encoding="utf-8")
    copy = tmp_path / _UNIT.name
    copy.write_text(text.replace(unit()["ExecStart"][0].split()[0], sys.executable), encoding="utf-8")
    done = subprocess.run(["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, check=False)
    # Older than 254, systemd warns that it does not know this one.
    warnings = [line for line in done.stderr.splitlines() if "DelegateSubgroup" not in line]
    assert (done.returncode, warnings) == (0, [])


def test_the_unit_starts_the_bot_and_gives_its_jobs_the_time_to_end() -> None:
    values = unit()
    _program, command = values["ExecStart"][0].split()
    cli.commands[command].make_context(command, [])
    drain = settings_of(Settings)["drain_seconds"].default
    assert drain is not None
    assert float(values["TimeoutStopSec"][0]) > float(drain) + ENDING_SECONDS + _KILL_SECONDS
    assert values["KillMode"] == ["mixed"], "SIGTERM would end the commands of running jobs"
    known = {each.name for each in SETTINGS}
    assert {value.partition("=")[0] for value in values["Environment"]} <= known
    assert values["Environment"] == [f"{PREFIX}DATA_DIR=/var/lib/{values['StateDirectory'][0]}"]


def test_the_unit_leaves_bubblewrap_its_namespaces_mounts_and_hostname() -> None:
    values = unit()
    breaking = {"RestrictNamespaces", "ProtectHostname", "ProtectProc", "ProcSubset", "ProtectKernelTunables"}
    breaking |= {"ProtectKernelLogs", "ProtectControlGroups", "MemoryDenyWriteExecute", "PrivateUsers"}
    assert not breaking & set(values)
    groups = values["SystemCallFilter"][0].removeprefix("~").split()
    assert not {"@mount", "@privileged", "@resources", "@process", "@debug", "@default"} & set(groups)
    assert "AF_NETLINK" in values["RestrictAddressFamilies"][0], "bubblewrap brings up the loopback device with it"
    assert values["NoNewPrivileges"] == ["yes"]
    assert values["Delegate"] == ["cpu memory pids"]


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl")
def test_the_example_can_be_built() -> None:
    done = subprocess.run(
        ["kubectl", "kustomize", str(_KUBERNETES / "example")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    built = [each for each in yaml.safe_load_all(done.stdout) if each]
    assert {"ScaledObject", "Ingress", "StatefulSet", "Deployment"} <= {each["kind"] for each in built}
    for each in built:
        _validate(each)
        assert each["metadata"]["namespace"] == "codepilot"
    assert "image: codepilot\n" not in done.stdout
