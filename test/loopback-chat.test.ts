import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createChatTransport } from "flotilla/ai-sdk";
import { createClient } from "flotilla/client";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { built } from "./built.ts";
import { type Running, start } from "./command.ts";

let folder: string;
let dev: Running;
let url: string;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "flotilla-loopback-"));
  const config = `
    import { agent, textOf } from ${JSON.stringify(built.index)};
    const helper = agent("helper", async function* ({ messages }) {
      yield "You said: " + textOf(messages.at(-1));
    });
    export default { store: "sqlite:flotilla.db", use: [helper] };`;
  writeFileSync(join(folder, "flotilla.config.mjs"), config);
  dev = start(["dev", "--port", "0"], { cwd: folder });
  url = await vi.waitUntil(() => /listens on (http\S+)/.exec(dev.output.stdout)?.[1], {
    timeout: 90_000,
  });
});
afterAll(async () => {
  vi.unstubAllGlobals();
  dev?.child.kill("SIGTERM");
  await dev?.ended;
  rmSync(folder, { recursive: true, force: true });
});

test("a chat on loopback works with an agent's name alone, and is in the inbox of who says no name", async () => {
  const readme = readFileSync(new URL("../README.md", import.meta.url), "utf8");
  expect(readme).toContain('const transport = createChatTransport({ agent: "helper" });');
  // A page that this server has served: the address is the page's own.
  vi.stubGlobal("location", new URL(url));
  const transport = createChatTransport({ agent: "helper" });
  const messages = [
    { id: "m", role: "user" as const, parts: [{ type: "text" as const, text: "hello" }] },
  ];
  const stream = await transport.sendMessages({
    trigger: "submit-message",
    chatId: "first",
    messageId: undefined,
    abortSignal: undefined,
    messages,
  });
  let text = "";
  for await (const chunk of stream) if (chunk.type === "text-delta") text += chunk.delta;
  expect(text).toBe("You said: hello");
  transport.close();
  const client = createClient({ url });
  expect(await client.sessions.get("first")).toMatchObject({ users: ["local"] });
  const answer = await fetch(`${url}/v1/inbox`);
  expect(await answer.json()).toMatchObject({ sessions: [{ sessionId: "first" }] });
  client.close();
});
