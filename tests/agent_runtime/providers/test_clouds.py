"""Requests to Amazon, Google and Azure over a real socket, and their signatures."""

from __future__ import annotations

import base64
import binascii
import json
import socket
import struct
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from agent_runtime.core.errors import ModelOutageError, ModelRejectedError, SettingsError
from agent_runtime.providers import catalog as clouds
from agent_runtime.providers.catalog import CATALOG, provider_for
from agent_runtime.providers.models import ModelOptions, OpenAIApi, load_prices, normalize_name
from agent_runtime.providers.protocol import Provider
from tests.agent_runtime.providers.conversations import Collected, Naps, collect, conversation
from tests.model_wires import Says, Wire, begun, ended
from tests.tls_hosts import serving

SECRET = "wJalr-made-up-secret-of-the-test"
AWS = {"AWS_REGION": "eu-central-1", "AWS_ACCESS_KEY_ID": "AKIATEST", "AWS_SECRET_ACCESS_KEY": SECRET}
VERTEX = {"CLOUD_ML_REGION": "europe-west1", "ANTHROPIC_VERTEX_PROJECT_ID": "acme"}
AZURE = {"OPENAI_API_VERSION": "2026-10-01", "AZURE_OPENAI_API_KEY": SECRET}


class Cloud:
    """A fake cloud.

    Attributes:
        requests: method, address, headers and body.
        refuses: status for model requests; 0 to accept.
        damage: in place of the rest of a reply of Bedrock.
    """

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        self.refuses = 0
        self.damage: bytes | None = None

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_post("/{rest:.*}", self._answer)
        return app

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.method, str(request.url), dict(request.headers), await request.read()))
        if request.path == "/token":
            return web.json_response({"access_token": "ya29.of-the-test", "expires_in": 3600})
        if self.refuses:
            return web.json_response({"message": "no"}, status=self.refuses)
        wire: Wire = "chat" if "chat" in request.path else "responses" if "responses" in request.path else "anthropic"
        frames = begun(Says("Hello."), wire, "m") + ended(Says("Hello."), wire, "m")
        if request.path.startswith("/model/"):
            events, kind = [*map(_event, _data(frames))], "application/vnd.amazon.eventstream"
            body = b"".join(events) if self.damage is None else b"".join(events[:3]) + self.damage
        else:
            body, kind = b"".join(frames), "text/event-stream"
        return web.Response(body=body, headers={"content-type": kind})


def _data(frames: list[bytes]) -> list[bytes]:
    return [frame.split(b"data: ", 1)[1].strip() for frame in frames]


def _event(data: bytes) -> bytes:
    """Encode a message of Amazon's event streams: https://smithy.io/2.0/aws/amazon-eventstream.html"""
    payload = json.dumps({"bytes": base64.b64encode(data).decode()}).encode()
    return _message({":message-type": "event", ":event-type": "chunk", ":content-type": "application/json"}, payload)


def _message(fields: Mapping[str, str], payload: bytes) -> bytes:
    headers = b""
    for name, value in fields.items():
        headers += bytes([len(name)]) + name.encode() + b"\x07" + struct.pack(">H", len(value)) + value.encode()
    prelude = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    message = prelude + struct.pack(">I", binascii.crc32(prelude)) + headers + payload
    return message + struct.pack(">I", binascii.crc32(message))


@pytest.fixture
async def cloud() -> AsyncIterator[Cloud]:
    fake = Cloud()
    async with serving(fake.app(), None) as port:
        fake.url = f"http://127.0.0.1:{port}"
        yield fake


@pytest.fixture(autouse=True)
def _no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for entry in CATALOG.values():
        for either in entry.cloud.required if entry.cloud else ():
            for name in either:
                monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))


def create(name: str, cloud: Mapping[str, str], model: str | None = None, api: OpenAIApi | None = None) -> Provider:
    return provider_for(name, model=model, options=ModelOptions(cloud=cloud, retry=Naps().retry(), api=api))


async def request(provider: Provider) -> Collected:
    try:
        return await collect(provider.reply(conversation(2)))
    finally:
        await provider.close()


async def test_bedrock_is_sent_requests_that_are_signed_for_the_region(cloud: Cloud) -> None:
    model = "eu.anthropic.claude-sonnet-5-5-v1:0"
    reply = await request(create("bedrock", AWS | {"ANTHROPIC_BEDROCK_BASE_URL": cloud.url}, model))
    assert reply.text == "Hello."
    assert reply.end is not None
    assert reply.end.usage.cost_usd == pytest.approx(
        load_prices().with_cost("claude-sonnet-5-5", reply.end.usage).cost_usd
    )
    [(method, url, headers, body)] = cloud.requests
    assert url == f"{cloud.url}/model/{model}/invoke-with-response-stream"
    assert "model" not in json.loads(body)
    scope = f"Credential=AKIATEST/{headers['X-Amz-Date'][:8]}/eu-central-1/bedrock/aws4_request"
    assert headers["Authorization"].startswith(f"AWS4-HMAC-SHA256 {scope}, SignedHeaders=")
    assert headers["Authorization"].endswith(_signature(method, url, headers, body))
    assert SECRET not in str(cloud.requests)


def _signature(method: str, url: str, headers: Mapping[str, str], body: bytes) -> str:
    """Compute a request's signature over its signed headers."""
    named = headers["Authorization"].partition("SignedHeaders=")[2].partition(",")[0].split(";")
    lower = {name.lower(): value for name, value in headers.items()}
    request = AWSRequest(method=method, url=url, data=body, headers={name: lower[name] for name in named})
    request.context["timestamp"] = headers["X-Amz-Date"]
    signer = SigV4Auth(Credentials("AKIATEST", SECRET), "bedrock", "eu-central-1")
    return str(signer.signature(signer.string_to_sign(request, signer.canonical_request(request)), request))


async def test_bedrock_takes_a_key_of_its_own(cloud: Cloud) -> None:
    variables = {"AWS_REGION": "us-east-1", "AWS_BEARER_TOKEN_BEDROCK": SECRET, "ANTHROPIC_BEDROCK_BASE_URL": cloud.url}
    assert (await request(create("bedrock", variables))).text == "Hello."
    assert cloud.requests[0][2]["Authorization"] == f"Bearer {SECRET}"
    cloud.refuses = 403
    with pytest.raises(ModelRejectedError, match="Amazon Bedrock"):
        await request(create("bedrock", variables))


def _exception(name: str, message: str) -> bytes:
    """Encode an exception of Amazon's event streams."""
    payload = json.dumps({"message": message}).encode()
    return _message({":message-type": "exception", ":exception-type": name}, payload)


@pytest.mark.parametrize(
    ("damage", "error"),
    [
        pytest.param(b"\xff" * 64, ModelOutageError, id="no event stream"),
        pytest.param(b"", ModelOutageError, id="cut off"),
        pytest.param(_exception("throttlingException", "Slow down"), ModelOutageError, id="throttled"),
        pytest.param(_exception("validationException", "No such parameter"), ModelRejectedError, id="invalid"),
    ],
)
async def test_a_damaged_stream_of_bedrock_is_an_outage(cloud: Cloud, damage: bytes, error: type[Exception]) -> None:
    cloud.damage = damage
    with pytest.raises(error) as caught:
        await request(create("bedrock", AWS | {"ANTHROPIC_BEDROCK_BASE_URL": cloud.url}))
    assert type(caught.value) is error
    assert cloud.url not in str(caught.value)


async def test_bedrock_without_credentials_fails_with_a_remedy(cloud: Cloud) -> None:
    with pytest.raises(ModelRejectedError, match=r"could not be signed.*Check the AWS credentials"):
        await request(create("bedrock", {"AWS_REGION": "us-east-1", "ANTHROPIC_BEDROCK_BASE_URL": cloud.url}))
    assert cloud.requests == []


async def test_vertex_uses_googles_default_credentials(
    cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = VERTEX | {"ANTHROPIC_VERTEX_BASE_URL": f"{cloud.url}/v1"}
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "missing.json"))
    with pytest.raises(ModelRejectedError, match="could not be signed"):
        await request(create("vertex", variables))
    key = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    account: dict[str, Any] = {"type": "service_account", "client_email": "bot@acme.example", "private_key_id": "1"}
    account |= {"private_key": key.decode(), "token_uri": f"{cloud.url}/token", "project_id": "acme"}
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "account.json"))
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        away = {**account, "token_uri": f"http://127.0.0.1:{closed.getsockname()[1]}/token"}
        (tmp_path / "account.json").write_text(json.dumps(away))
        with pytest.raises(ModelOutageError, match=r"credentials could not be fetched \(TransportError\)"):
            await request(create("vertex", variables))
    (tmp_path / "account.json").write_text(json.dumps(account))
    assert (await request(create("vertex", variables, "claude-opus-5@20260801"))).text == "Hello."
    _, url, headers, body = cloud.requests[-1]
    place = "projects/acme/locations/europe-west1/publishers/anthropic/models/claude-opus-5@20260801:streamRawPredict"
    assert url == f"{cloud.url}/v1/{place}"
    assert headers["Authorization"] == "Bearer ya29.of-the-test"
    assert "model" not in json.loads(body)


@pytest.mark.parametrize(("api", "path"), [(None, "/deployments/coder/chat/completions"), ("responses", "/responses")])
async def test_azure_requests_name_the_deployment(cloud: Cloud, api: OpenAIApi | None, path: str) -> None:
    variables = AZURE | {"AZURE_OPENAI_ENDPOINT": cloud.url}
    assert (await request(create("azure", variables, "coder", api))).text == "Hello."
    _, url, headers, body = cloud.requests[0]
    assert url == f"{cloud.url}/openai{path}?api-version=2026-10-01"
    assert json.loads(body)["model"] == "coder"
    assert headers["api-key"] == SECRET
    assert "Authorization" not in headers


async def test_azure_takes_an_entra_token_before_a_key(cloud: Cloud) -> None:
    variables = AZURE | {"AZURE_OPENAI_ENDPOINT": cloud.url, "AZURE_OPENAI_AD_TOKEN": "entra"}
    assert (await request(create("azure", variables, "coder"))).text == "Hello."
    headers = cloud.requests[0][2]
    assert headers["Authorization"] == "Bearer entra"
    assert SECRET not in str(headers)


@pytest.mark.parametrize(
    ("name", "lacks"),
    [
        ("bedrock", "AWS_REGION or AWS_DEFAULT_REGION"),
        ("vertex", "CLOUD_ML_REGION, ANTHROPIC_VERTEX_PROJECT_ID"),
        ("azure", "AZURE_OPENAI_ENDPOINT, OPENAI_API_VERSION, AZURE_OPENAI_AD_TOKEN or AZURE_OPENAI_API_KEY"),
    ],
)
def test_a_missing_variable_is_named(name: str, lacks: str) -> None:
    with pytest.raises(SettingsError, match=f"needs {lacks},"):
        create(name, {}, "m")


@pytest.mark.parametrize(("name", "variables"), [("bedrock", AWS), ("vertex", VERTEX)])
def test_the_credentials_of_a_cloud_go_to_no_other_address(name: str, variables: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match="takes no base_url"):
        provider_for(name, base_url="https://models.example.com", options=ModelOptions(cloud=variables))


def test_secrets_are_not_shown_with_the_options() -> None:
    assert SECRET not in repr(ModelOptions(cloud=AWS))


def test_a_missing_extra_is_named() -> None:
    for module in ("no_such_package", "no_such_package.part"):
        with pytest.raises(SettingsError, match=r"install codepilot-bot\[bedrock\]"):
            clouds.require_extra(module, "bedrock")


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("anthropic.claude-opus-5-v1:0", "claude-opus-5"),
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", "claude-sonnet-4-5-20250929"),
        ("global.anthropic.claude-sonnet-5-5", "claude-sonnet-5-5"),
        ("arn:aws:bedrock:eu-west-1:1:inference-profile/eu.anthropic.claude-opus-5-v1:0", "claude-opus-5"),
        ("claude-opus-5@20260801", "claude-opus-5-20260801"),
        ("openai/gpt-6.2-sol", "gpt-6.2-sol"),
        ("my-deployment", "my-deployment"),
    ],
)
def test_a_model_is_recognised_by_its_makers_name(name: str, plain: str) -> None:
    assert normalize_name(name) == plain
