import type { Chunk } from "../../protocol/chunk.ts";
import { textOf } from "../../protocol/message.ts";
import { agent } from "../../sessions/agents/agent.ts";

/** Words that an agent says when the test gives them, by session. */
const scripts = new Map<string, ReturnType<typeof createScript>>();

const scripted = agent("scripted", async function* ({ sessionId, signal }) {
  yield* scriptOf(sessionId).read(signal);
});
const buyer = agent("buyer", function* ({ messages }): Generator<Chunk | string> {
  const call = messages.at(-1)?.parts.find((part) => part.type === "tool-pay");
  if (!call) {
    yield { type: "start-step" };
    yield* textChunks("a", "may I?");
    yield { type: "tool-input-available", toolCallId: "c1", toolName: "pay", input: { eur: 5 } };
    yield { type: "tool-approval-request", toolCallId: "c1", approvalId: "p1" };
    return;
  }
  const { approved } = call["approval"] as { approved?: boolean };
  if (approved) yield { type: "tool-output-available", toolCallId: "c1", output: "paid" };
  else yield { type: "tool-output-denied", toolCallId: "c1" };
  yield* textChunks("b", approved ? "it is paid" : "as you like");
});
const asker = agent("asker", function* ({ messages }): Generator<Chunk> {
  const call = messages.at(-1)?.parts.find((part) => part.type === "tool-zone");
  yield { type: "start-step" };
  if (!call) {
    yield { type: "tool-input-available", toolCallId: "z1", toolName: "zone", input: {} };
  } else {
    yield* textChunks("t", `you are in ${String(call["output"])}`);
  }
});
const teller = agent("teller", function* (): Generator<Chunk> {
  yield { type: "data-step", id: "d", data: { at: 1 } };
  yield { type: "data-step", id: "d", data: { at: 2 } };
  yield { type: "data-hint", data: "soon", transient: true };
  yield* textChunks("t", "done");
});
const seer = agent("seer", async function* ({ messages, files }) {
  const { parts } = messages.at(-1)!;
  const all = await Promise.all(parts.filter(({ type }) => type === "file").map(files.read));
  yield all.map((bytes) => Buffer.from(bytes).toString("base64")).join();
});
const mirror = agent("mirror", ({ messages }) => `you said ${textOf(messages.at(-1)!)}`);
const broken = agent("broken", function* (): Generator<Chunk | string> {
  yield "so far ";
  throw new Error("the model is on fire");
});

/** Agents that do one thing each: say what a test or a user tells them, buy, ask the page, tell data, or fail. */
export const chatAgents = [seer, mirror, scripted, buyer, asker, teller, broken];

function createScript() {
  let buffered: Chunk[] = [];
  let wakeReader: (() => void) | undefined;
  let onDrained: (() => void) | undefined;
  const whenDrained = () =>
    buffered.length === 0
      ? Promise.resolve()
      : new Promise<void>((resolve) => (onDrained = resolve));
  return {
    async write(...words: string[]) {
      buffered.push(...words.map((delta) => ({ type: "text-delta", id: "t", delta })));
      wakeReader?.();
      await whenDrained();
    },
    async end() {
      buffered.push({ type: "finish" });
      wakeReader?.();
      await whenDrained();
    },
    async *read(signal: AbortSignal): AsyncGenerator<Chunk> {
      yield { type: "text-start", id: "t" };
      for (;;) {
        while (buffered.length === 0) {
          await new Promise<void>((resolve, reject) => {
            wakeReader = resolve;
            signal.addEventListener("abort", () => reject(signal.reason as Error), { once: true });
          });
        }
        const chunks = buffered;
        buffered = [];
        onDrained?.();
        for (const chunk of chunks) {
          if (chunk.type === "finish") {
            yield { type: "text-end", id: "t" };
            return;
          }
          yield chunk;
        }
      }
    },
  };
}

/** What the agent `scripted` says in a session. */
export function scriptOf(sessionId: string) {
  const script = scripts.get(sessionId) ?? createScript();
  scripts.set(sessionId, script);
  return script;
}

function* textChunks(id: string, text: string): Generator<Chunk> {
  yield { type: "text-start", id };
  yield { type: "text-delta", id, delta: text };
  yield { type: "text-end", id };
}
