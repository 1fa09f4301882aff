// An App on Probot that acknowledges comments and does nothing: `node probot_server.mjs SECRET PORT logs|quiet`.
// `logs` is what `probot run` does, which logs each request; `quiet` is its middleware in a server of its own.
import { generateKeyPairSync } from "node:crypto";
import { createServer } from "node:http";
import { createNodeMiddleware, Probot, run } from "probot";

const [secret, port, style] = process.argv.slice(2);
const { privateKey } = generateKeyPairSync("rsa", {
  modulusLength: 2048,
  privateKeyEncoding: { type: "pkcs1", format: "pem" },
  publicKeyEncoding: { type: "pkcs1", format: "pem" },
});
const app = (robot) => robot.on("issue_comment.created", async () => {});
if (style === "logs") {
  const env = { APP_ID: "1", PRIVATE_KEY: privateKey, WEBHOOK_SECRET: secret, HOST: "127.0.0.1", PORT: port };
  await run(app, { env: { ...env, WEBHOOK_PATH: "/webhook", NODE_ENV: "production" } });
} else {
  const probot = new Probot({ appId: 1, privateKey, secret, logLevel: "fatal" });
  const middleware = await createNodeMiddleware(app, { probot, webhooksPath: "/webhook" });
  createServer((request, response) => middleware(request, response)).listen(Number(port), "127.0.0.1");
}
