// An agent behind a URL as a plain generator, in plain Node: it lets in only what is signed.
// prints: refused without a signature: 401 the request isn't signed
// prints: helper: Ada, you said: good morning
// prints: asked once, as the first turn of the session
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { agent, startPod, textOf } from "flotilla";
import { createAgentHandler, toNode } from "flotilla/agent";

const secret = `whsec_${Buffer.from("a secret of thirty-two characters").toString("base64")}`;
const turns: string[] = [];

const handler = createAgentHandler({
  secret,
  async *answer({ messages, user, webhookId }) {
    // A turn that is tried again has the same id.
    turns.push(webhookId);
    yield `${user}, you said: `;
    yield textOf(messages.at(-1)!);
  },
});
const answer = toNode(handler);
const server = createServer((request, response) => void answer(request, response));
await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/agent`;

const refused = await fetch(url, { method: "POST", body: "{}" });
const { error } = (await refused.json()) as { error: { message: string } };
console.log(`refused without a signature: ${refused.status} ${error.message}`);

// `allowPrivate`, because it is on this machine: elsewhere it needs https and a public address.
const helper = agent("helper", { url, secret, allowPrivate: true });
await using pod = await startPod({ store: "sqlite:generator.db", use: [helper] });
const chat = await pod.sessions.create(helper, { user: "Ada" });
const reply = await chat.ask("good morning");
console.log(`${reply.author}: ${textOf(reply)}`);
const once = turns.length === 1 && turns[0] === `${chat.sessionId}:1`;
console.log(once ? "asked once, as the first turn of the session" : turns);
server.close();
