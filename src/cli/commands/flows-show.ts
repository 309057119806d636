import { systemClock } from "../../base/clock.ts";
import { FlotillaError } from "../../base/errors.ts";
import { nearest } from "../../base/options.ts";
import { describeFlow, type CursorCounts } from "../../flows/describe.ts";
import type { RunView } from "../../flows/rows.ts";
import type { StuckRuns } from "../../flows/stuck.ts";
import {
  flowToJson,
  type FlowView,
  type FlowWorkers,
  machinesOf,
  readFlows,
} from "../../runtime/flows.ts";
import { onTarget } from "../connect.ts";
import type { TargetFlags } from "../flags.ts";
import { ago, oneLine, paint, print, printJson } from "../output.ts";
import type { Operations } from "../remote.ts";
import { plural } from "../progress.ts";
import { loadHandlers } from "../settings.ts";
import { noWorkerText } from "./runs-show.ts";

export type FlowsFlags = TargetFlags & { json?: true };
type Stuck = { readonly stuck: StuckRuns; readonly run: RunView | undefined };

type StuckText = { readonly trouble: string; readonly remedies: readonly string[] };

const maxStuckShown = 10;
// For display only: pods judge each other by beats, and much sooner.
const silentAfterMs = 30_000;
const countLabels: Readonly<Partial<Record<string, string>>> = { setAside: "set aside" };

/** Prints flows for `flotilla flows`. */
export async function showFlows(name: string | undefined, flags: FlowsFlags): Promise<void> {
  const machines = machinesOf(
    (await loadHandlers({ config: flags.config, store: flags.store ?? flags.url })).use,
  );
  const { shown, stuck } = await onTarget(flags, async (flotilla) => {
    const all = await readFlows(flotilla, machines);
    const chosen = name === undefined ? all : [chosenOf(all, name)];
    return { shown: chosen, stuck: await withOldest(flotilla, chosen, flags.json) };
  });
  if (flags.json) return printJson({ flows: shown.map(flowToJson) });
  if (shown.length === 0) return print("no flows");
  const nowMs = systemClock.now();
  const texts = shown.map((each) => drawFlow(each, stuck, nowMs));
  print(texts.join("\n\n"));
}

/** Why runs are stuck, and what to do about it. `run` is the oldest of them. */
export function stuckLines(
  stuck: StuckRuns,
  run: RunView | undefined,
  workers: readonly FlowWorkers[],
  nowMs: number,
): string[] {
  const { runs, runId, sinceMs } = stuck;
  const at = stuck.at === null ? "start" : oneLine(stuck.at, 100);
  const which = oneLine(runs === 1 ? runId : `such as ${runId}`, 100);
  // The row's time is that of the last failed attempt, not of the first.
  const since = stuck.why === "retrying" ? "" : ` for ${ago(nowMs, sinceMs)}`;
  const { trouble, remedies } = describeStuck(stuck, run, workers);
  return [`${plural(runs, "run")} at ${at}${since}: ${trouble} (${which})`, ...remedies];
}

function chosenOf(all: readonly FlowView[], name: string): FlowView {
  const found = all.find(({ flow }) => flow === name);
  if (found) return found;
  const meant = nearest(
    name,
    all.map(({ flow }) => flow),
  );
  const hint = meant === undefined ? "" : `, did you mean ${oneLine(meant, 100)}?`;
  throw new FlotillaError("not_found", `there is no flow ${oneLine(name, 100)}${hint}`);
}

/** Reads the oldest run of each kind of stuck runs, for its details. */
async function withOldest(
  { runs }: Operations,
  shown: readonly FlowView[],
  json: true | undefined,
): Promise<Stuck[]> {
  if (json) return [];
  const all = shown.flatMap((each) => each.stuck.slice(0, maxStuckShown));
  return Promise.all(all.map(async (stuck) => ({ stuck, run: await runs.get(stuck.runId) })));
}

function drawFlow(view: FlowView, all: readonly Stuck[], nowMs: number): string {
  const { machine, workers } = view;
  const own = all.filter(({ stuck }) => stuck.flow === view.flow);
  const more = view.stuck.length - own.length;
  return [
    machine ? describeFlow(machine, view) : listPlaces(view),
    ...(view.atLeast ? [paint("dim", "  there are more runs than were counted")] : []),
    "",
    paint(workers.length === 0 ? "yellow" : "dim", workersLine(workers, nowMs)),
    ...own.flatMap(({ stuck, run }) => {
      const [trouble, ...remedies] = stuckLines(stuck, run, workers, nowMs);
      return [
        `${paint("yellow", "stuck")}  ${trouble}`,
        ...remedies.map((each) => `       ${each}`),
      ];
    }),
    ...(more > 0 ? [`and ${more} more kinds of stuck runs: --json shows all`] : []),
  ].join("\n");
}

/** Without its machine: the transitions where runs are, in no particular order. */
function listPlaces(view: FlowView): string {
  const places = Object.entries(view.places ?? {}).map(
    ([name, counts]) => `  ${oneLine(name, 100)}  ${countsText(counts)}`,
  );
  const { completed = 0, failed = 0, cancelled = 0 } = view;
  const ended = countsText({ completed, failed, cancelled });
  return [
    `${oneLine(view.flow, 200)}  ${paint("dim", "(not in the config, so its parts are unknown)")}`,
    "",
    ...places,
    ...(ended === "" ? [] : [`  end  ${ended}`]),
    ...(places.length === 0 && ended === "" ? ["  no runs"] : []),
  ].join("\n");
}

function countsText(counts: CursorCounts | Readonly<Record<string, number>>): string {
  return Object.entries(counts)
    .filter(([, count]) => count > 0)
    .map(([what, count]) => `${count} ${countLabels[what] ?? what}`)
    .join(", ");
}

function workersLine(workers: readonly FlowWorkers[], nowMs: number): string {
  if (workers.length === 0) return "no worker: no live pod has this flow";
  const each = workers.map(({ version, pods, lastHeartbeatMs }) => {
    const isSilent = nowMs - lastHeartbeatMs > silentAfterMs;
    const heard = isSilent ? `, last heartbeat ${ago(nowMs, lastHeartbeatMs)} ago` : "";
    return `version ${version} on ${plural(pods, "pod")}${heard}`;
  });
  return `workers: ${each.join(", ")}`;
}

function describeStuck(
  stuck: StuckRuns,
  run: RunView | undefined,
  workers: readonly FlowWorkers[],
): StuckText {
  switch (stuck.why) {
    case "set_aside":
      return describeSetAside(stuck, run);
    case "no_worker":
      return describeNoWorker(stuck, workers);
    case "retrying": {
      const { runId } = stuck;
      const message = run?.error ? `: ${oneLine(run.error.message, 200)}` : "";
      return {
        trouble: `retrying, at attempt ${run?.attempt ?? "?"}${message}`,
        remedies: [
          `see every attempt with \`flotilla runs show ${runId}\`, or cancel it with \`flotilla runs cancel ${runId}\``,
        ],
      };
    }
    case "waiting":
      return describeWaiting(stuck, run);
  }
}

function describeSetAside({ runId }: StuckRuns, run: RunView | undefined): StuckText {
  const doing = run?.doing;
  const why = doing?.type === "set_aside" ? oneLine(doing.message, 300) : "it can't be read";
  return {
    trouble: `set aside: ${why}`,
    remedies: [
      "deploy a higher version that can read them, and they go on by themselves",
      `or fix the cause and retry with \`flotilla runs resume ${runId}\`; \`flotilla runs list --set-aside\` lists all`,
    ],
  };
}

function describeNoWorker(
  { flow, version, runId }: StuckRuns,
  workers: readonly FlowWorkers[],
): StuckText {
  const highest = workers.at(-1)?.version;
  const name = oneLine(flow, 100);
  const wanted = version > 0 ? `version ${version} or a later one of ${name}` : name;
  return {
    trouble: noWorkerText(version),
    remedies: [
      `start a pod that has ${wanted}`,
      ...(highest === undefined
        ? []
        : [
            `or hand a run to version ${highest} with \`flotilla runs resume ${runId} --as ${highest}\`, if that version can read its state`,
          ]),
    ],
  };
}

function describeWaiting({ flow, runId }: StuckRuns, run: RunView | undefined): StuckText {
  const name = oneLine(flow, 100);
  const doing = run?.doing;
  if (doing?.type === "waiting_for_signal") {
    const signal = oneLine(doing.name, 100);
    return {
      trouble: `waiting for the signal ${signal}`,
      remedies: [`send it with \`flotilla runs signal ${runId} ${signal} '{…}'\``],
    };
  }
  if (doing?.type === "waiting_for_children") {
    return {
      trouble: "waiting for children",
      remedies: [`see what they do with \`flotilla runs list --parent ${runId} --status open\``],
    };
  }
  if (doing?.type === "waiting_for_others") {
    return {
      trouble: "waiting for dependencies",
      remedies: [`see which with \`flotilla runs show ${runId}\``],
    };
  }
  if (doing?.type === "waiting_for_room") {
    return {
      trouble: `blocked by the limit of ${oneLine(doing.scope ?? "a scope", 100)}`,
      remedies: ["see the limits with `flotilla limits list`"],
    };
  }
  return run?.paused
    ? { trouble: "paused", remedies: [`resume them with \`flotilla resume ${name}\``] }
    : {
        trouble: "ready, but no pod has claimed them",
        remedies: ["see what keeps pods from claiming with `flotilla pods`"],
      };
}
