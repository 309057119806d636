import process from "node:process";
import { agent } from "../../sessions/agents/agent.ts";
import { textMessage, startTestServer } from "./test-server.ts";

export const secret = "a secret of thirty-two characters or more";
export const messageBytes = 100_000;
export const messages = 60;
// What an expression that looks at the same characters again takes minutes for.
export const toolInput = `1${"e".repeat(400_000)}1`;

const hostile = agent("hostile", async function* () {
  const call = { toolCallId: "c", toolName: "t" };
  yield { type: "start" };
  yield { type: "tool-input-start", ...call };
  yield { type: "tool-input-delta", toolCallId: "c", inputTextDelta: toolInput };
  yield { type: "finish" };
});

/** A server in a process of its own, whose memory a test watches. */
if (process.send) {
  const server = await startTestServer({
    server: { tokens: { secret }, adminPort: 0 },
    use: [hostile],
    maxPayloadBytes: 1024 * 1024,
  });
  await server.sessions.create("acme", { sessionId: "long", users: ["eve", "ada"] });
  const hostiles = { sessionId: "hostile", users: ["ada"], agents: ["hostile"] };
  await server.sessions.create("acme", hostiles);
  for (let n = 0; n < messages; n++) {
    const message = { ...textMessage("x".repeat(messageBytes)), author: "ada" };
    await server.sessions.send("acme", "long", message);
  }
  let mostBytes = 0;
  const look = () => (mostBytes = Math.max(mostBytes, process.memoryUsage.rss()));
  setInterval(look, 20).unref();
  process.on("message", () =>
    process.send?.({ nowBytes: look() && process.memoryUsage.rss(), mostBytes }),
  );
  process.on("disconnect", () => process.exit(0));
  process.send({ port: server.port, url: server.url, adminUrl: server.adminUrl });
}
