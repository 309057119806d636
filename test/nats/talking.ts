import { readFileSync } from "node:fs";
import process from "node:process";
import { expect } from "vitest";

/** A config with an agent that repeats what it is told. */
export function echoConfig(flotilla: string): string {
  return `import { agent, defineConfig } from ${JSON.stringify(flotilla)};
    export default defineConfig({
      use: [agent("echo", async function* ({ messages }) {
        yield "you said " + messages.at(-1).parts[0].text;
      })],
    });`;
}

export async function createSession(url: string): Promise<string> {
  const created = await post(`${url}/v1/sessions`, { agents: ["echo"], users: ["ann"] });
  return ((await created.json()) as { sessionId: string }).sessionId;
}

/** Sends a message over HTTP, and gives the answer to it once it is stored. */
export async function ask(url: string, sessionId: string, text: string): Promise<string> {
  const message = { author: "ann", parts: [{ type: "text", text }] };
  const sent = await post(`${url}/v1/sessions/${sessionId}/messages`, message);
  expect(sent.status).toBeLessThan(300);
  const { seq } = (await sent.json()) as { seq: number };
  let answer = "";
  await expect
    .poll(
      async () => {
        const page = await fetch(`${url}/v1/sessions/${sessionId}/messages?after=${seq}`);
        const { entries = [] } = (await page.json()) as {
          entries?: { role: string; parts: { text?: string }[] }[];
        };
        answer = entries.find(({ role }) => role === "assistant")?.parts[0]?.text ?? "";
        return answer;
      },
      { timeout: 60_000 },
    )
    .not.toBe("");
  return answer;
}

const post = (url: string, body: unknown) =>
  fetch(url, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });

export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, "utf8"));
  } catch {
    return false;
  }
}
