import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import process from "node:process";
import { expect } from "vitest";
import { until } from "../crash/until.ts";

/** A config with an agent that repeats what it is told. */
export function echoConfig(flotilla: string): string {
  return `import { agent, defineConfig } from ${JSON.stringify(flotilla)};
    export default defineConfig({
      use: [agent("echo", async function* ({ messages }) {
        yield "you said " + messages.at(-1).parts[0].text;
      })],
    });`;
}

type NewSession = { sessionId?: string; agents: readonly string[]; users: readonly string[] };

/** Makes a session by a pod, which may have no log to put it into before a server has been elected. */
export async function makeSession(url: string, session: NewSession): Promise<string> {
  const sessionId = session.sessionId ?? randomUUID();
  await sendUntilStored(`${url}/v1/sessions`, { ...session, sessionId });
  return sessionId;
}

export const createSession = (url: string): Promise<string> =>
  makeSession(url, { agents: ["echo"], users: ["ann"] });

/**
 * Makes a session whose id the pod draws: while the store is away no other is made. Sent again it may make
 * another one.
 */
export async function createUnnamed(url: string): Promise<string> {
  const made = await sendUntilStored(`${url}/v1/sessions`, { agents: ["echo"], users: ["ann"] });
  return (made as { sessionId: string }).sessionId;
}

/** Sends a message over HTTP, and gives the answer to it once it is stored. */
export async function ask(url: string, sessionId: string, text: string): Promise<string> {
  // By its id a message that is sent again is stored once.
  const message = { id: randomUUID(), author: "ann", parts: [{ type: "text", text }] };
  const sent = await sendUntilStored(`${url}/v1/sessions/${sessionId}/messages`, message);
  const { seq } = sent as { seq: number };
  let answer = "";
  await expect
    .poll(async () => {
      const page = await fetch(`${url}/v1/sessions/${sessionId}/messages?after=${seq}`);
      const { entries = [] } = (await page.json()) as {
        entries?: { role: string; parts: { text?: string }[] }[];
      };
      answer = entries.find(({ role }) => role === "assistant")?.parts[0]?.text ?? "";
      return answer;
    })
    .not.toBe("");
  return answer;
}

/**
 * Posts until a pod has stored it. While a server or a pod is gone, a call may end before a log has an owner
 * again. Whatever else is refused is an error.
 */
async function sendUntilStored(url: string, body: object): Promise<unknown> {
  const content = {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  };
  return until(`POST ${url} is stored`, async () => {
    const answer = await fetch(url, content).catch(() => undefined);
    if (answer?.ok) return (await answer.json()) as unknown;
    const said = await answer?.text();
    if (answer && answer.status < 500 && answer.status !== 429) throw new Error(said);
    return undefined;
  });
}

export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, "utf8"));
  } catch {
    return false;
  }
}
