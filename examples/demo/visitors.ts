import { setTimeout as sleep } from "node:timers/promises";
import { agent, type Chunk, schedule, type Sessions, task, textOf } from "flotilla";
import { z } from "zod";
import { guide } from "./agents.ts";
import { askModel, summary } from "./model.ts";
import { slowly } from "./saying.ts";

const everyMs = 30_000;
const keptVisits = 20;
const patienceMs = 500;
const people = ["ada", "grace", "edsger", "barbara", "alan"];
const questions = ["What is a sloop?", "Why do boats float?", "Who was the first to sail alone?"];

/** What a model costs, for a million tokens: the dashboard shows it for each turn. */
export const prices = { "boats-1": { input: 2, output: 8 } };

/** Has a page summed up by a task, asks the model itself, and counts what that costs. */
export const librarian = agent(
  "librarian",
  async function* ({ messages, signal, enqueue, usage }): AsyncGenerator<Chunk | string> {
    const page = textOf(messages.at(-1) ?? { parts: [] });
    const call = { toolCallId: "c1", toolName: "summary" };
    yield { type: "tool-input-available", ...call, input: { page } };
    // Once for this answer, however often it is begun again after a crash.
    const output = await enqueue(summary, { page }, { toolCallId: "c1" });
    yield { type: "tool-output-available", toolCallId: "c1", output: { ...output } };
    const said = await untilTaken(page, signal);
    usage({ model: "boats-1", input: 400 + page.length, output: said.length });
    yield* slowly(`${said} A summary of the page follows as task ${output.taskId}.`, signal);
  },
);

/** A person of the demo asks the librarian, and sometimes the guide, which asks before it acts. */
export const visit = task("visit", { input: z.object({}), attempts: 3 }, async ({ taskId }) => {
  const sessions = await started;
  const number = Math.floor(Date.now() / everyMs);
  const user = people[number % people.length]!;
  const chat = await sessions.create([librarian, guide], {
    sessionId: `visit-${taskId}`,
    user,
    metadata: { from: "the demo" },
  });
  await chat.ask(questions[number % questions.length]!, { id: `${taskId}-1` });
  if (number % 3 === 0) await chat.send("Order a coffee", { id: `${taskId}-2`, to: guide.name });
  await forgetOld(sessions);
  return { sessionId: chat.sessionId, user };
});

/** A schedule of visits, one every half minute. */
export const visits = schedule("visits", { task: visit, input: {}, everyMs });

// A visit that an earlier run left behind may be claimed before this one has started.
let start: (sessions: Sessions) => void;
const started = new Promise<Sessions>((resolve) => (start = resolve));

export function receiveVisitors({ sessions }: { readonly sessions: Sessions }): void {
  start(sessions);
}

/** A demo that runs for weeks keeps the last visits alone. */
async function forgetOld(sessions: Sessions): Promise<void> {
  const page = await sessions.list({ agent: librarian.name, limit: keptVisits * 2 });
  const old = page.sessions.slice(keptVisits);
  for (const { sessionId } of old) await sessions.open(sessionId).remove();
}

/** Asks until the model takes it: the throttle finds out how much that is. */
async function untilTaken(page: string, signal: AbortSignal): Promise<string> {
  for (;;) {
    const said = await askModel(page, signal).catch(() => undefined);
    if (said !== undefined) return said;
    await sleep(patienceMs, undefined, { signal });
  }
}
