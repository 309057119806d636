import process from "node:process";
import { FlotillaError } from "../../base/errors.ts";
import { nearest } from "../../base/options.ts";
import type { StartOptions } from "../../flows/runs.ts";
import type { FlowContract } from "../../tasks/task.ts";
import type { Flotilla } from "../../runtime/connect.ts";
import type { Workable } from "../../runtime/handlers.ts";
import { onStore } from "../connect.ts";
import type { StoreFlags } from "../flags.ts";
import { print, printJson } from "../output.ts";
import { loadHandlers } from "../settings.ts";
import { noteNoWorker } from "../no-worker.ts";
import { type NewTaskFlags, parseInput, traceOfCaller, type WaitFlags } from "../task-flags.ts";

export type StartFlags = StoreFlags &
  NewTaskFlags &
  WaitFlags & { json?: true; onDuplicate?: "existing" | "reject" };

/** Starts a run. With a config its input is checked here, and it counts in its queue. */
export async function start(
  name: string,
  given: string | undefined,
  flags: StartFlags,
): Promise<void> {
  const { json, wait, timeoutMs, config, store, ...rest } = flags;
  const input = await parseInput(given);
  const { workables, maxPayloadBytes } = await loadHandlers(config);
  const flow = flowOf(name, workables, json);
  const options: StartOptions = { ...rest, trace: traceOfCaller() };
  const where = { ...(config && { config }), ...(store && { store }) };
  const work = async (flotilla: Flotilla): Promise<void> => {
    const { runs } = flotilla;
    const { runId, created } = await runs.start(flow, input, options);
    if (!json) print(runId);
    await noteNoWorker(flotilla, [name]);
    if (!wait) {
      if (json) printJson({ runId, created });
      return;
    }
    const output = await runs.wait(runId, { ...(timeoutMs !== undefined && { timeoutMs }) });
    printJson(json ? { runId, created, output } : output);
  };
  await onStore(where, work, { maxPayloadBytes });
}

/** A name that the config doesn't have is started all the same: its flow may be in another program. */
function flowOf(name: string, use: readonly Workable[], json: true | undefined): FlowContract {
  const found = use.find((each) => each.name === name);
  if (found && !found.isFlow) {
    const message = `${name} is a task and no flow: use \`flotilla enqueue ${name}\``;
    throw new FlotillaError("invalid_option", message);
  }
  if (found) return { ...found, isFlow: true };
  const names = use.filter(({ isFlow }) => isFlow).map((each) => each.name);
  const meant = nearest(name, names);
  if (meant !== undefined && !json) {
    const doubt = `the config has no flow "${name}", did you mean "${meant}"?`;
    process.stderr.write(`flotilla: ${doubt} It is started all the same\n`);
  }
  return { name, input: undefined, output: undefined, isFlow: true };
}
