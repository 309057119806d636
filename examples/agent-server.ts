// An agent behind a URL: a plain server that checks who asks, and streams as the AI SDK does.
// prints: refused without a signature: 401
// prints: agent: Ada said: good morning
// prints: each request came with an id, and was signed
import { createHmac, timingSafeEqual } from "node:crypto";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { agent, startPod, textOf } from "flotilla";

const secret = `whsec_${Buffer.from("a secret of thirty-two characters").toString("base64")}`;
const seen = new Set<string>();

const server = createServer((request, response) => void answer(request, response));

async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const body = await bodyOf(request);
  if (!isSigned(request, body)) return void response.writeHead(401).end();
  // A request that is sent again has the same id.
  seen.add(String(request.headers["webhook-id"]));
  const { messages, flotilla } = JSON.parse(body);
  response.writeHead(200, {
    "content-type": "text/event-stream",
    "x-vercel-ai-ui-message-stream": "v1",
  });
  const say = (chunk: object) => response.write(`data: ${JSON.stringify(chunk)}\n\n`);
  say({ type: "start" });
  say({ type: "text-start", id: "t" });
  say({ type: "text-delta", id: "t", delta: `${flotilla.user} said: ` });
  say({ type: "text-delta", id: "t", delta: messages.at(-1).parts[0].text });
  say({ type: "text-end", id: "t" });
  say({ type: "finish" });
  response.end("data: [DONE]\n\n");
}
await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/chat`;

const refused = await fetch(url, { method: "POST", body: "{}" });
console.log(`refused without a signature: ${refused.status}`);

// `allowPrivate`, because it is on this machine: elsewhere it needs https and a public address.
const remote = agent("agent", { url, secret, allowPrivate: true });
await using pod = await startPod({ store: "sqlite:agent-server.db", use: [remote] });
const chat = await pod.sessions.create(remote, { user: "Ada" });
const reply = await chat.ask("good morning");
console.log(`${reply.author}: ${textOf(reply)}`);
console.log(seen.size === 1 ? "each request came with an id, and was signed" : [...seen]);
server.close();

/** As Standard Webhooks has it: any library for that does the same. */
function isSigned({ headers }: IncomingMessage, body: string): boolean {
  const { "webhook-id": id, "webhook-timestamp": at, "webhook-signature": signatures } = headers;
  if (Math.abs(Date.now() / 1_000 - Number(at)) > 300) return false;
  const key = Buffer.from(secret.slice("whsec_".length), "base64");
  const expected = createHmac("sha256", key).update([id, at, body].join(".")).digest();
  return String(signatures ?? "")
    .split(" ")
    .some((each) => {
      const given = Buffer.from(each.replace(/^v1,/, ""), "base64");
      return given.length === expected.length && timingSafeEqual(given, expected);
    });
}

async function bodyOf(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks).toString("utf8");
}
