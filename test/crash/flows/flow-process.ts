/** A pod with flows in a process of its own, which tells what it does with runs and can be made to stop. */
import process from "node:process";
import { type Config, type Pod, type Runs, startPod, type TaskHandler } from "flotilla";
import { flowHandler } from "../../../src/flows/drive/drive.ts";
import { silentLogger } from "../../../src/base/log.ts";
import { type ImagesGiven, imageKey, imagesOf } from "./images.ts";
import { machines } from "./machines.ts";
import { order } from "./order.ts";
import { type Called, openReports } from "./reports.ts";
import { createStopping, type Stop } from "./stop.ts";
import type { FromPod, PodSpec, ToPod } from "../pod-process.ts";

export type FlowsGiven = {
  /** Where runs stop for good, by their keys, and where the others do. */
  readonly stops?: Readonly<Record<string, Stop>>;
  readonly others?: Stop;
  /** The version of the orders that it knows. Default 1. */
  readonly version?: number;
  /** Works on images, and on nothing else. */
  readonly images?: ImagesGiven;
};

const spec = JSON.parse(process.argv[2]!) as PodSpec & { given: FlowsGiven };
const { stops = {}, others, version = 1 } = spec.given;
const tell = (message: FromPod) => void process.send?.(message);
let pod: Pod | undefined;
const runs = (): Runs => pod!.runs;
const say = openReports(spec.ledgerPath.replace(/ledger$/, "reports"), () => pod?.podId ?? "");

let onStarted = () => {};
const started = new Promise<void>((resolve) => (onStarted = resolve));

const open = new Set<string>();
const waiting: (() => void)[] = [];
const opened = (gate: string): Promise<void> =>
  new Promise((resolve) => {
    const look = () => (open.has(gate) ? resolve() : void waiting.push(look));
    look();
  });

type Context = Omit<Called, "key"> & { readonly outcome?: { readonly type: string } };

async function recorded(context: Context, next: () => Promise<unknown>): Promise<unknown> {
  const { runId, flow, transition, attempt, outcome } = context;
  const called: Called = {
    key: stopping.keyOf(runId),
    runId,
    flow,
    transition,
    attempt,
    version: context.version,
  };
  say({ event: "start", ...called });
  await stopping.called(runId);
  try {
    const value = await next();
    // Children are named by their flows, which would be much to write down.
    const told = Array.isArray(value) ? value.length : (outcome?.type ?? value);
    say({ event: "end", ok: true, value: JSON.stringify(told ?? null), ...called });
    return value;
  } catch (error) {
    say({ event: "end", ok: false, value: String(error), ...called });
    throw error;
  }
}

const images = spec.given.images && imagesOf(spec.given.images, recorded, runs);
const stopping = createStopping({
  async keyOf({ taskId, name, payload }) {
    // A pod may have claimed something before we are given it.
    await started;
    if (images) return imageKey(await images.homeOf(taskId), name, payload);
    return (JSON.parse(payload) as { key: string }).key;
  },
  stopOf: (key) => stops[key] ?? others,
  say,
  onStored({ runId, flow, payload, events }) {
    // The test learns that the run waits, and sends the signal.
    if (!events.includes("park")) return;
    if (flow === "asks") void runs().signal(runId, "approve", by, { id: "approval" });
    const { goes = false } = JSON.parse(payload) as { goes?: boolean };
    if (flow === "order" && goes) void runs().signal(runId, "go", null, { id: "go" });
  },
});
const by = { by: "somebody" };

const handlers: TaskHandler[] = images
  ? await images.handlers()
  : [...machines(recorded, { runs, opened }), order(version, recorded)].map(flowHandler);
const config: Config = {
  pollMs: 100,
  slots: 1_000,
  pressure: false,
  ...spec.config,
  store: spec.store,
  use: handlers.map(stopping.handler),
  log: silentLogger,
};

pod = await startPod(config);
onStarted();
tell({ ready: pod.podId });

process.on("message", (message: ToPod) => {
  if (!("open" in message)) return;
  open.add(message.open);
  for (const look of waiting.splice(0)) look();
});
process.once("SIGTERM", () => void pod.stop().then(() => process.exit(0)));
// Without the test that started it, this process would never end.
process.once("disconnect", () => process.exit(1));
