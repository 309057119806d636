import type { RunView } from "../../flows/rows.ts";
import type { StuckRuns } from "../../flows/stuck.ts";
import type { FlowWorkers } from "../../runtime/flows.ts";
import { ago, oneLine } from "../output.ts";
import { plural } from "../progress.ts";
import { noWorkerText } from "./runs-text.ts";

/** What is wrong with some runs, and what to do about it. `run` is the oldest of them. */
export function stuckLines(
  stuck: StuckRuns,
  run: RunView | undefined,
  workers: readonly FlowWorkers[],
  nowMs: number,
): string[] {
  const { runs, runId, sinceMs } = stuck;
  const at = stuck.at === null ? "start" : oneLine(stuck.at, 100);
  const which = runs === 1 ? runId : `such as ${runId}`;
  // Each failed attempt is written, so how long it goes on like that isn't in the row.
  const since = stuck.why === "retrying" ? "" : ` for ${ago(nowMs, sinceMs)}`;
  const { trouble, remedies } = toldOf(stuck, run, workers);
  return [`${plural(runs, "run")} at ${at}${since}: ${trouble} (${which})`, ...remedies];
}

type Told = { readonly trouble: string; readonly remedies: readonly string[] };

function toldOf(stuck: StuckRuns, run: RunView | undefined, workers: readonly FlowWorkers[]): Told {
  switch (stuck.why) {
    case "set_aside":
      return aside(stuck, run);
    case "no_worker":
      return unworked(stuck, workers);
    case "retrying": {
      const { runId } = stuck;
      const message = run?.error ? `: ${oneLine(run.error.message, 200)}` : "";
      return {
        trouble: `tried again and again, at attempt ${run?.attempt ?? "?"}${message}`,
        remedies: [
          `see every attempt with \`flotilla runs show ${runId}\`, or give up with \`flotilla runs cancel ${runId}\``,
        ],
      };
    }
    case "waiting":
      return waiting(stuck, run);
  }
}

function aside({ runId }: StuckRuns, run: RunView | undefined): Told {
  const doing = run?.doing;
  const why = doing?.type === "set_aside" ? oneLine(doing.message, 300) : "it can't be read";
  return {
    trouble: `set aside: ${why}`,
    remedies: [
      "deploy a higher version that can read them, and they go on by themselves",
      `or mend what is wrong and try again with \`flotilla runs resume ${runId}\`; \`flotilla runs list --set-aside\` has all`,
    ],
  };
}

function unworked({ flow, version, runId }: StuckRuns, workers: readonly FlowWorkers[]): Told {
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
            `or give a run to version ${highest} with \`flotilla runs resume ${runId} --as ${highest}\`, if that can go on with its state`,
          ]),
    ],
  };
}

function waiting({ flow, runId }: StuckRuns, run: RunView | undefined): Told {
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
      trouble: "waiting for what they were to run after",
      remedies: [`see for what with \`flotilla runs show ${runId}\``],
    };
  }
  if (doing?.type === "waiting_for_room") {
    return {
      trouble: `waiting for room in ${oneLine(doing.scope ?? "a limit", 100)}`,
      remedies: ["see what is full with `flotilla limits list`"],
    };
  }
  return run?.paused
    ? { trouble: "paused", remedies: [`let them go on with \`flotilla resume ${name}\``] }
    : {
        trouble: "ready, and nobody has taken them",
        remedies: ["see what pods are busy with: `flotilla pods`"],
      };
}
