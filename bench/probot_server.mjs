// An App on Probot that acknowledges comments and does nothing: `node probot_server.mjs SECRET` prints its port.
import { generateKeyPairSync } from "node:crypto";
import { createServer } from "node:http";
import { createNodeMiddleware, Probot } from "probot";

const { privateKey } = generateKeyPairSync("rsa", {
  modulusLength: 2048,
  privateKeyEncoding: { type: "pkcs1", format: "pem" },
  publicKeyEncoding: { type: "pkcs1", format: "pem" },
});
const probot = new Probot({ appId: 1, privateKey, secret: process.argv[2], logLevel: "fatal" });
const app = (robot) => robot.on("issue_comment.created", async () => {});
const middleware = await createNodeMiddleware(app, { probot, webhooksPath: "/webhook" });
const server = createServer((request, response) => middleware(request, response));
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
