import { openSync, readdirSync, readFileSync, writeSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import type { UIMessage } from "../../../src/protocol/message.ts";
import type { AgentContext } from "../../../src/sessions/agents/spec.ts";
import type { Step } from "../../../src/steps/model.ts";
import { monotonicMs } from "../ledger.ts";
import { pauseFor } from "../until.ts";

/** A call of an agent, as the process that was called has written it down. */
export type Call = {
  readonly atMs: number;
  readonly where: string;
  readonly event: "called" | "ended" | "aborted" | "step begun" | "step ended";
  /** The key of a step. */
  readonly step?: string;
  readonly agent: string;
  readonly session: string;
  readonly epoch: number;
  readonly attempt: number;
};

export type Asked = Pick<Call, "agent" | "session" | "epoch" | "attempt"> & {
  readonly messages: readonly UIMessage[];
  readonly signal: AbortSignal;
};

const words = 4;
const wordMs = 15;
const lingerMs = 1_000;
const longMs = 8_000;

/**
 * What every agent of these tests says: a few words, then what it answers, by which a checker knows what
 * was answered. One whose message begins with `hold` says only the first half until it is let go, one with
 * `linger` takes a second for it, one with `long` eight, one with `block` never lets anything else of its
 * process run again, one with `die` ends it, and one with `careless` leaves a promise behind that rejects.
 */
export function createScript(path: string, where: () => string) {
  const file = openSync(path, "a");
  const open = new Set<string>();
  const waiting = new Set<() => void>();

  const opened = (gate: string, signal: AbortSignal): Promise<void> =>
    new Promise((resolve) => {
      const look = () => {
        if (!open.has(gate) && !signal.aborted) return;
        waiting.delete(look);
        resolve();
      };
      waiting.add(look);
      signal.addEventListener("abort", look, { once: true });
      look();
    });

  return {
    /** Lets all answers go on that wait for this gate: the text of a session's last message. */
    open(gate: string): void {
      open.add(gate);
      for (const look of waiting) look();
    },
    /** Writes down that an agent was called. */
    called(what: Pick<Call, "agent" | "session" | "epoch" | "attempt">): void {
      const line = { atMs: monotonicMs(), where: where(), event: "called", ...what };
      writeSync(file, `${JSON.stringify(line)}\n`);
    },
    async *answer(asked: Asked): AsyncGenerator<string> {
      const { agent, session, epoch, attempt, signal } = asked;
      const say = (event: Call["event"]) => {
        const line = { atMs: monotonicMs(), where: where(), event, agent, session, epoch, attempt };
        writeSync(file, `${JSON.stringify(line)}\n`);
      };
      const last = asked.messages.findLast(({ role }) => role === "user");
      const text = String(last?.parts[0]?.["text"]);
      say("called");
      yield `attempt ${attempt}:`;
      for (let word = 0; word < words; word++) {
        await pauseFor(wordMs);
        yield ` ${word}`;
      }
      if (text.startsWith("hold")) await opened(text, signal);
      if (text.startsWith("linger")) await pauseFor(lingerMs);
      if (text.startsWith("long")) await pauseFor(longMs);
      while (text.startsWith("block"));
      if (text.startsWith("die")) process.kill(process.pid, "SIGKILL");
      if (text.startsWith("careless")) void Promise.reject(new Error(`left behind in ${text}`));
      if (signal.aborted) return say("aborted");
      yield ` re ${text}`;
      say("ended");
    },
    /**
     * Searches, orders and ships in steps, which are written down as they begin and end. All but the search
     * wait for a gate of their name and the message.
     */
    async *answerInSteps({ step, ...asked }: Asked & { step: Step }): AsyncGenerator<string> {
      const { agent, session, epoch, attempt, signal } = asked;
      const say = (event: Call["event"], of?: string) => {
        const what = { event, agent, session, epoch, attempt, ...(of && { step: of }) };
        writeSync(file, `${JSON.stringify({ atMs: monotonicMs(), where: where(), ...what })}\n`);
      };
      const text = String(asked.messages.at(-1)?.parts[0]?.["text"]);
      const act = async (key: string, gate?: string) => {
        say("step begun", key);
        if (gate !== undefined) await opened(gate, signal);
        if (signal.aborted) throw new Error("no longer wanted");
        say("step ended", key);
        return `${key} by attempt ${attempt}. `;
      };
      say("called");
      yield await step("search", () => act("search"));
      yield await step("order", () => act("order", `order-${text}`));
      await opened(`pause-${text}`, signal);
      yield await step("ship", () => act("ship", `ship-${text}`));
      yield ` re ${text}`;
      say("ended");
    },
    /** Says what it hears before each of three steps, which wait for a gate of their name and the message. */
    async *answerSteered({
      step,
      steering,
      ...asked
    }: Asked & Pick<AgentContext, "step" | "steering">): AsyncGenerator<string> {
      const { agent, session, epoch, attempt, signal } = asked;
      const say = (event: Call["event"], of?: string) => {
        const what = { event, agent, session, epoch, attempt, ...(of && { step: of }) };
        writeSync(file, `${JSON.stringify({ atMs: monotonicMs(), where: where(), ...what })}\n`);
      };
      const text = String(asked.messages.at(-1)?.parts[0]?.["text"]);
      say("called");
      for (const key of ["one", "two", "three"]) {
        for (const { parts } of await steering()) yield `(${String(parts[0]?.["text"])}) `;
        yield await step(key, async () => {
          say("step begun", key);
          await opened(`${key}-${text}`, signal);
          if (signal.aborted) throw new Error("no longer wanted");
          say("step ended", key);
          return `${key} by attempt ${attempt}. `;
        });
      }
      yield ` re ${text}`;
      say("ended");
    },
  };
}

/** What was answered, of an answer that came to its end. */
export function answeredBy(text: string): string | undefined {
  return / re (\S+)$/.exec(text)?.[1];
}

export function readCalls(folder: string): Call[] {
  const files = readdirSync(folder).filter((name) => name.endsWith(".calls"));
  return files
    .flatMap((name) => {
      const lines = readFileSync(join(folder, name), "utf8").split("\n");
      lines.pop();
      return lines.map((line) => JSON.parse(line) as Call);
    })
    .toSorted((a, b) => a.atMs - b.atMs);
}
