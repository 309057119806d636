import { deepStrictEqual, strictEqual } from "node:assert";
import process from "node:process";
import { agent, connect, FlotillaError, startPod, task, textOf } from "flotilla";
import { scriptedAgent, testFlotilla } from "flotilla/testing";
import { z } from "zod";
import { authorsOf, helper } from "./sessions.ts";
import { half, order, orders, parcel } from "./flows.ts";

/** What a user writes who has installed the package: without annotations, and strictly typed. */
const store = process.argv[2]!;
const log = { debug() {}, info() {}, warn() {}, error() {} };

const summarize = task("summarize", {
  input: z.object({ url: z.string(), depth: z.number().default(1) }),
  output: z.object({ words: z.number() }),
});
const summarizer = summarize.handle({ attempts: 2 }, async ({ input, signal, progress }) => {
  signal.throwIfAborted();
  progress({ done: 1 });
  return { words: input.url.length + input.depth };
});
const count = task("count", {}, ({ input }) => [input].length);

const pod = await startPod({ store, use: [summarizer, count], log });
const flotilla = connect(store, { create: false });

const first = await flotilla.enqueue(summarize, { url: "abc" }, { key: "k", runAt: new Date(0) });
const { words } = await flotilla.waitFor(first);
strictEqual(words.toFixed(1), "4.0");

const again = flotilla.enqueue(summarize, { url: "x" }, { key: "k", onDuplicate: "reject" });
const refusal = await again.catch((error: unknown) => error);
strictEqual(refusal instanceof FlotillaError && refusal.code, "duplicate_key");

async function* rows() {
  yield { task: summarize, input: { url: "xyz" }, options: { priority: 5 } };
  yield { task: count, input: [1, 2] };
  yield { task: "nobody's", input: null };
}
const { outcomes, created } = await flotilla.enqueueEach(rows());
strictEqual(created, 2);
deepStrictEqual(
  outcomes.map((each) => (each.outcome === "rejected" ? each.code : each.outcome)),
  ["created", "created", "invalid_option"],
);
const [, counted] = outcomes;
if (counted?.outcome !== "created") throw new Error("it wasn't created");
const ended = await flotilla.tasks.settled(counted.taskId);
strictEqual(ended.status === "completed" && ended.result, 1);
await flotilla.close();
await pod.stop();

const t = await testFlotilla({ use: [summarizer] });
deepStrictEqual(await t.run(summarize, { url: "abcd", depth: 2 }), { words: 6 });
await t.close();

const flows = await testFlotilla({ use: [orders, parcel] });
const run = await flows.runs.start(order, { items: ["a", "bb"] });
await flows.runs.signal(run.runId, "approval", { by: "ada" });
const { weights } = await flows.runs.wait(run);
strictEqual(weights.map((each) => each.toFixed(0)).join(), "1,2");
strictEqual(half.end().name, "half");
await flows.close();

const echo = agent("echo", { during: "interrupt", history: { tail: 5 } }, ({ messages }) =>
  textOf(messages.at(-1)!),
);
const scripted = scriptedAgent("scripted", ["one", [{ type: "data-x", data: 1 }, "two"]]);
const talks = await testFlotilla({ use: [echo, helper, scripted] });
const chat = await talks.sessions.create([echo, helper, scripted], { user: "ada" });
strictEqual(textOf(await chat.ask("hello")), "hello");
strictEqual((await chat.ask("hello", { to: "helper" })).outcome, "completed");
strictEqual(textOf(await chat.ask("hello", { to: scripted.name })), "one");
deepStrictEqual(await authorsOf(chat, 4), ["ada", "echo", "ada", "helper"]);
strictEqual(scripted.calls.length, 1);
await talks.close();
console.log(`done on Node ${process.versions.node.split(".")[0]}`);
