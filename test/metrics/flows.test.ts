import {
  connect,
  flow,
  type Flotilla,
  type Flow,
  type Pod,
  startPod,
  type StartOptions,
} from "flotilla";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import { silentLogger } from "../../src/base/log.ts";
import { until } from "../../src/base/contract/movable-clock.ts";
import { createApp } from "../../src/server/app.ts";
import { listen, type ListeningServer } from "../../src/server/serve.ts";
import { createMetrics } from "../../src/server/metrics/metrics.ts";
import { temporaryDatabase, temporaryFile } from "../../src/store/contract/kinds.ts";
import { type ChaosProxy, startChaosProxy } from "../crash/postgres/chaos-proxy.ts";
import { type Family, parseExposition, valueOf } from "./exposition.ts";

const backoff = { baseMs: 1, maxMs: 1 };
const leaf = flow("leaf", { version: 1 })
  .to("only", () => {})
  .end();
const mixed = flow("mixed", { version: 1, backoff, attempts: 2 })
  .to("empty", () => {})
  .to("flaky", ({ attempt }) => {
    if (attempt === 1) throw new Error("not yet");
  })
  .children("parts", () => [[leaf, null]])
  .sleep("nap", 1)
  .to("judge", ({ input }) => {
    if (input === "bad") throw new Error("as ordered");
  })
  .finally("tidy", () => {})
  .end();
const told = flow("told", { version: 1 }).signal("word").end();
let turning = 0;
const endless = flow("endless", { version: 1 })
  .to("turn", async ({ signal }) => {
    turning++;
    await new Promise((_, reject) => signal.addEventListener("abort", reject));
  })
  .end();
const use = [leaf, mixed, told, endless];

type Place = { url: string; remove: () => Promise<void> };
const sqlite = async (): Promise<Place> => {
  const { path, remove } = temporaryFile();
  return { url: `sqlite:${path}`, remove };
};

const stores = [
  { name: "a SQLite file", open: sqlite },
  { name: "Postgres", open: (): Promise<Place> => temporaryDatabase() },
];

describe.each(stores)("a scrape of a pod that runs flows on $name", ({ name, open }) => {
  let place: Place;
  let proxy: ChaosProxy | undefined;
  let flotilla: Flotilla;
  let pod: Pod | undefined;
  let server: ListeningServer;
  let metrics: ReturnType<typeof createMetrics>;
  let runIds: string[];

  beforeEach(async () => {
    place = await open();
    [pod, proxy, runIds] = [undefined, undefined, []];
    metrics = createMetrics({ pod: () => pod, flows: use, names: use.map((each) => each.name) });
    flotilla = connect(place.url);
    await flotilla.ping();
    const parts = { flotilla, apiKeys: [], metrics, isStopping: () => false, log: silentLogger };
    const app = createApp({ ...parts, clock: systemClock });
    server = await listen(app, { host: "127.0.0.1", port: 0, clock: systemClock });
  });
  afterEach(async () => {
    await pod?.stop();
    await proxy?.close();
    await server.close();
    await flotilla.close();
    await place.remove();
  });

  const work = async (store = place.url, flows: Parameters<typeof startPod>[0]["use"] = use) => {
    const pace = { pollMs: 50, graceMs: 100, shutdownMs: 100 };
    const config = { store, use: flows, log: silentLogger, ...pace };
    pod = await startPod(config, { onEvent: metrics.observe });
  };
  const scrape = async () => parseExposition(await (await fetch(`${server.url}/metrics`)).text());
  const value = async (series: string, ...labels: string[]) =>
    valueOf(await scrape(), series, ...labels);
  const start = async (of: Flow, input: unknown, options?: StartOptions) => {
    const { runId } = await flotilla.runs.start(of, input, options);
    runIds.push(runId);
    return runId;
  };
  const doing = (runId: string, type: string) =>
    until(type, async () => (await flotilla.runs.get(runId))?.doing?.type === type);
  const ended = (runId: string) =>
    until("its ending", async () => (await flotilla.runs.get(runId))?.status !== "open");

  /** What histories tell must have been counted, by the labels of `flotilla_transitions_total`. */
  const noted = async (): Promise<Record<string, number>> => {
    const counts: Record<string, number> = {};
    const { runs } = await flotilla.runs.list({ limit: 1_000 });
    for (const { runId, flow: of } of runs) {
      for (const entry of await flotilla.runs.history(runId)) {
        const { type, transition, detail } = entry;
        const { retryAtMs } = (detail ?? {}) as { retryAtMs?: number | null };
        const outcome =
          type === "error"
            ? retryAtMs === null
              ? "failed"
              : "retry"
            : { complete: "completed", park: "parked", cancel: "cancelled" }[type];
        if (outcome === undefined) continue;
        const labels = `flow="${of}",transition="${transition}",outcome="${outcome}"`;
        counts[labels] = (counts[labels] ?? 0) + 1;
      }
    }
    return counts;
  };
  const counted = (seen: Map<string, Family>, family: string, sample = family) =>
    Object.fromEntries(
      seen
        .get(family)!
        .samples.filter((each) => each.name === sample && each.value > 0)
        .map((each) => [each.labels, each.value]),
    );

  test("counts every transition once, by what became of it, as the history has it", async () => {
    await work();
    for (let at = 0; at < 10; at++) await start(mixed, at % 5 === 0 ? "bad" : "good");
    const words = await Promise.all([start(told, null), start(told, null)]);
    for (const runId of words) await doing(runId, "waiting_for_signal");
    await flotilla.runs.signal(words[0]!, "word", null);
    await flotilla.runs.cancel(words[1]!);
    for (const runId of runIds) await ended(runId);
    await until(
      "the last count",
      async () => (await value("flotilla_runs_ended_total")) >= 10 + 10 + 2,
    );
    const seen = await scrape();
    const expected = await noted();
    const transitions = counted(seen, "flotilla_transitions_total");
    expect(transitions).toEqual(expected);
    expect(transitions).toMatchObject({
      'flow="mixed",transition="empty",outcome="completed"': 10,
      'flow="mixed",transition="flaky",outcome="retry"': 10,
      'flow="mixed",transition="flaky",outcome="completed"': 10,
      'flow="mixed",transition="nap",outcome="parked"': 10,
      'flow="mixed",transition="judge",outcome="retry"': 2,
      'flow="mixed",transition="judge",outcome="failed"': 2,
      'flow="mixed",transition="tidy",outcome="completed"': 10,
      'flow="leaf",transition="only",outcome="completed"': 10,
      'flow="told",transition="word",outcome="cancelled"': 1,
    });
    const durations = "flotilla_transition_duration_seconds";
    expect(counted(seen, durations, `${durations}_count`)).toEqual(expected);
    expect(counted(seen, "flotilla_runs_begun_total")).toEqual({
      'flow="leaf"': 10,
      'flow="mixed"': 10,
      'flow="told"': 2,
    });
    const endings = {
      'flow="leaf",status="completed"': 10,
      'flow="mixed",status="completed"': 8,
      'flow="mixed",status="failed"': 2,
      'flow="told",status="completed"': 1,
      'flow="told",status="cancelled"': 1,
    };
    expect(counted(seen, "flotilla_runs_ended_total")).toEqual(endings);
    const lasted = "flotilla_run_duration_seconds";
    expect(counted(seen, lasted, `${lasted}_count`)).toEqual(endings);
    // A wait is as long as it was, over as many claims as it took.
    const slept = ['flow="mixed",transition="nap",outcome="completed"'];
    expect(valueOf(seen, `${durations}_sum`, ...slept)).toBeGreaterThanOrEqual(0.01);
  });

  test("shows what hasn't happened yet as zero, and nothing that no flow declares", async () => {
    const seen = await scrape();
    const { samples } = seen.get("flotilla_transitions_total")!;
    expect(samples.filter((each) => each.value > 0)).toEqual([]);
    expect(samples.map(({ labels }) => labels)).toContain(
      'flow="mixed",transition="tidy",outcome="failed"',
    );
    expect(samples).toHaveLength(3 * (1 + 6 + 1 + 1));
  });

  test("shows what open runs do, and those that were set aside", async () => {
    turning = 0;
    await work();
    const [waits, runs] = await Promise.all([start(told, null), start(endless, null)]);
    await start(leaf, null, { delayMs: 3_600_000 });
    await start(leaf, null, { after: [runs] });
    await doing(waits, "waiting_for_signal");
    await until("its attempt", () => turning === 1);
    const open = (of: string, what: string) =>
      value("flotilla_runs_open", `flow="${of}"`, `doing="${what}"`);
    await until("what they do", async () => (await open("told", "waiting_for_signal")) === 1);
    await until("who runs", async () => (await open("endless", "running")) === 1);
    expect(await open("leaf", "delayed")).toBe(1);
    expect(await open("leaf", "waiting_for_others")).toBe(1);
    expect(await value("flotilla_runs_open")).toBe(4);
    await pod!.stop();
    expect(
      await value("flotilla_transitions_total", 'flow="endless"', 'outcome="interrupted"'),
    ).toBe(1);
    await until("who is ready", async () => (await open("endless", "ready")) === 1);
    await work(place.url, [flow("told", { version: 2 }).signal("saying").end()]);
    await flotilla.runs.signal(waits, "word", null);
    await until("who is aside", async () => (await open("told", "set_aside")) === 1);
    const aside = ['flow="told"', 'reason="unknown_transition"'];
    expect(await value("flotilla_runs_set_aside_total", ...aside)).toBe(1);
  });

  test.runIf(name === "Postgres")(
    "counts what was stored once, though the answers to it were lost",
    async () => {
      proxy = await startChaosProxy(place.url);
      await work(proxy.through(place.url));
      // A commit that keeps the claim, a retry, a park, another commit, and the end of a run.
      const words = ["flaky", "retryAtMs", "children", "tidy", "finish"];
      for (const word of words) {
        const lost = proxy.loseAnswer((sent) => sent.includes(word));
        const runId = await start(mixed, "good");
        await lost;
        await ended(runId);
      }
      await until(
        "the last count",
        // A child whose answer was lost is counted after its parent has gone on.
        async () => (await value("flotilla_runs_ended_total")) >= 10,
      );
      const seen = await scrape();
      expect(counted(seen, "flotilla_transitions_total")).toEqual(await noted());
      expect(valueOf(seen, "flotilla_runs_ended_total")).toBe(10);
      expect(valueOf(seen, "flotilla_runs_begun_total")).toBe(10);
    },
  );
});
