import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { until } from "../../base/contract/movable-clock.ts";
import type { Logger } from "../../base/log.ts";
import { connect, type Flotilla } from "../../runtime/connect.ts";
import type { Pod } from "../../runtime/pod.ts";
import { startPod } from "../../runtime/start-pod.ts";
import { temporaryFile } from "../../store/contract/kinds.ts";
import { type Flow, flow } from "../flow.ts";

const secret = "nobody's business";
type Line = { readonly level: keyof Logger; readonly text: string } & Record<string, unknown>;

let place: ReturnType<typeof temporaryFile>;
let flotilla: Flotilla;
let pod: Pod;
let lines: Line[];

beforeEach(() => {
  place = temporaryFile();
  flotilla = connect(`sqlite:${place.path}`);
  lines = [];
});
afterEach(async () => {
  await pod.stop();
  await flotilla.close();
  await place.remove();
});

const logTo = (level: keyof Logger) => (fields: object, text: string) =>
  void lines.push({ ...fields, level, text } as Line);
const log: Logger = {
  debug: logTo("debug"),
  info: logTo("info"),
  warn: logTo("warn"),
  error: logTo("error"),
};
const work = async (...use: Flow[]) => {
  const paces = { pollMs: 50, graceMs: 100, shutdownMs: 100 };
  pod = await startPod({ store: `sqlite:${place.path}`, use, log, ...paces });
};
const linesOf = (runId: string) => lines.filter((line) => line["run_id"] === runId);
const said = (runId: string, text: string) =>
  until(text, () => linesOf(runId).find((line) => line.text === text));

describe("every line about a run", () => {
  const backoff = { baseMs: 1, maxMs: 1 };
  const all = flow("all", { version: 3, backoff })
    .init(({ log: mine }) => {
      mine.info({}, "initialized");
      return { tool: secret };
    })
    .to("empty", () => {})
    .to("flaky", ({ attempt, log: mine }) => {
      mine.info({ own: 1 }, "trying");
      if (attempt === 1) throw new Error("not yet");
      return { kept: secret };
    })
    .sleep("nap", 1)
    .signal("word")
    .finally("tidy", ({ log: mine }) => mine.info({}, "tidied"))
    .end();

  test("names the run, flow, version, transition and attempt it is about, the pod and the claim", async () => {
    const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    const trace = { traceparent };
    const { runId } = await flotilla.runs.start(all, secret, { trace });
    // Before the run gets there, so that it isn't parked for it.
    await flotilla.runs.signal(runId, "word", secret);
    await work(all);
    await flotilla.runs.wait(runId);
    await said(runId, "run ended");
    const about = linesOf(runId);
    for (const line of about) {
      expect(line).toMatchObject({
        run_id: runId,
        flow: "all",
        run_version: 3,
        attempt: expect.any(Number),
        token: expect.any(Number),
        pod: pod.podId,
        trace_id: "4bf92f3577b34da6a3ce929d0e0e4736",
      });
      expect(line).toHaveProperty("transition");
    }
    const seen = about.map(({ level, text, transition, attempt }) =>
      [level, text, transition, attempt].join(", "),
    );
    expect(seen.filter((line) => !line.includes("initialized"))).toEqual([
      "debug, run started, empty, 1",
      "debug, transition completed, empty, 1",
      "info, trying, flaky, 1",
      "warn, transition failed, retrying, flaky, 1",
      "info, trying, flaky, 2",
      "debug, transition completed, flaky, 2",
      "debug, run parked, nap, 1",
      "debug, transition completed, nap, 1",
      "debug, transition completed, word, 1",
      "info, tidied, tidy, 1",
      "debug, transition completed, tidy, 1",
      "info, run ended, tidy, 1",
    ]);
    expect(seen.filter((line) => line.includes("initialized"))[0]).toBe(
      "info, initialized, empty, 1",
    );
    expect(linesOf(runId).find(({ text }) => text === "trying")).toMatchObject({ own: 1 });
    // Nothing about it was said in any other way.
    expect(lines.filter((line) => line["task"] === runId)).toEqual([]);
  });

  test("contains no input, state or output of the run", async () => {
    await work(all);
    const { runId } = await flotilla.runs.start(all, secret);
    await flotilla.runs.signal(runId, "word", secret);
    expect(await flotilla.runs.wait(runId)).toEqual({ kept: secret, word: secret });
    await said(runId, "run ended");
    expect(JSON.stringify(lines)).not.toContain(secret);
  });
});

test("a run that fails or is cancelled is reported, and why", async () => {
  const broken = flow("broken", { version: 1, attempts: 1 })
    .to("burn", () => {
      throw new Error("out of paper");
    })
    .end();
  const asking = flow("asking", { version: 1 }).signal("word").end();
  await work(broken, asking);
  const failed = await flotilla.runs.start(broken, null);
  await said(failed.runId, "run failed");
  expect(await said(failed.runId, "transition failed")).toMatchObject({
    level: "warn",
    transition: "burn",
    error: "out of paper",
    code: "handler_failed",
  });
  const cancelled = await flotilla.runs.start(asking, null);
  await said(cancelled.runId, "run parked");
  await flotilla.runs.cancel(cancelled.runId);
  expect(await said(cancelled.runId, "run cancelled")).toMatchObject({ level: "info" });
  expect(await said(cancelled.runId, "run ended")).toMatchObject({ status: "cancelled" });
});

test("a run that its pod interrupts is reported once it was given back", async () => {
  let began = false;
  const endless = flow("endless", { version: 1 })
    .to("turn", async ({ signal }) => {
      began = true;
      await new Promise((_, reject) => signal.addEventListener("abort", reject));
    })
    .end();
  await work(endless);
  const { runId } = await flotilla.runs.start(endless, null);
  await until("its attempt", () => began);
  await pod.stop();
  expect(await said(runId, "transition interrupted")).toMatchObject({
    level: "info",
    transition: "turn",
    attempt: 1,
  });
});

test("a run that can't be read is logged as an error, once it is set aside", async () => {
  const told = flow("told", { version: 1 }).signal("word").end();
  await work(told);
  const { runId } = await flotilla.runs.start(told, null);
  await said(runId, "run parked");
  await pod.stop();
  await work(flow("told", { version: 2 }).signal("saying").end());
  await flotilla.runs.signal(runId, "word", null);
  expect(await said(runId, "run set aside")).toMatchObject({
    level: "error",
    run_version: 2,
    transition: "word",
    reason: "unknown_transition",
  });
  expect((await flotilla.runs.get(runId))?.doing).toMatchObject({ type: "set_aside" });
});
