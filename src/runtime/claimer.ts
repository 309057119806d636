import { hostname } from "node:os";
import process from "node:process";
import { stoppable } from "./start-pod.ts";
import type { Backoff } from "../base/backoff.ts";
import { systemClock } from "../base/clock.ts";
import { FlotillaError } from "../base/errors.ts";
import { uuidv7 } from "../base/ids.ts";
import { checkNumber, checkOptions } from "../base/options.ts";
import { systemRandom } from "../base/random.ts";
import { createVitalSigns, startHeartbeatThread } from "../pods/heartbeat-thread.ts";
import { type Claimer, createClaimer, type ClaimerParts } from "../tasks/claim/claimer.ts";
import { checkTaskName } from "../tasks/task.ts";
import { openStore } from "../store/open.ts";
import { shareWithProcess } from "../throttles/scope.ts";
import { redactingLogger } from "../redaction/log.ts";
import { assemblePod } from "./pod.ts";
import { type Config, resolveConfig } from "./config.ts";
import { defaultLogger, identifyProcess } from "./process.ts";
import type { TaskContract } from "../tasks/model.ts";

const configOptions = [
  "store",
  "durability",
  "migrate",
  "pollMs",
  "heartbeatMs",
  "deadAfterMs",
  "stallBeats",
  "maxResultBytes",
  "log",
] as const;

const maxNames = 500;

/** Everything has a default but `names`. */
export type ClaimerConfig = Pick<Config, (typeof configOptions)[number]> &
  Pick<ClaimerParts, "onLost"> & {
    /** The tasks to claim: by name, or by contract where that has a concurrency limit. */
    names: readonly (string | TaskContract)[];
    /** The attempts of a task that was enqueued without a number of its own. Default 3. */
    attempts?: number;
    backoff?: Backoff;
  };

/**
 * For programs with their own loop: a pod that claims and sends heartbeats, but runs nothing itself. It
 * can become the leader like any pod. `await using claimer = await startClaimer(…)` also stops it.
 */
export async function startClaimer(config: ClaimerConfig): Promise<Claimer> {
  checkOptions("startClaimer", config, [
    ...configOptions,
    "names",
    "attempts",
    "backoff",
    "onLost",
  ]);
  const { names: wanted, attempts, backoff, onLost, ...rest } = config;
  if (!Array.isArray(wanted) || wanted.length === 0 || wanted.length > maxNames) {
    throw new FlotillaError(
      "invalid_option",
      `names must be a list of 1 to ${maxNames} names of tasks`,
    );
  }
  const contracts = new Map(
    config.names.map((each) => (typeof each === "string" ? [each, undefined] : [each.name, each])),
  );
  const names = [...contracts.keys()];
  for (const name of names) checkTaskName(name);
  if (attempts !== undefined) checkNumber("attempts", attempts, { min: 1, max: 1_000 });
  // The pod's own worker runs nothing, so it needs no folder for an outbox or progress.
  const settings = resolveConfig({ ...rest, dataDir: false });
  const log = redactingLogger(settings.log ?? defaultLogger());
  const database = await openStore(settings.store, { ...settings, log });
  const ids = uuidv7(systemClock, systemRandom);
  const signs = createVitalSigns();
  let claimer: ReturnType<typeof createClaimer> | undefined;
  const shared = {
    podId: ids.next(),
    database,
    clock: systemClock,
    random: systemRandom,
    ids,
    log,
  };
  try {
    const pod = await assemblePod(settings, {
      ...shared,
      startHeartbeat: (hooks) =>
        startHeartbeatThread({
          ...hooks,
          store: settings.store,
          signs,
          metadata: { host: hostname(), pid: process.pid, names },
        }),
      thisProcess: identifyProcess(),
      shareThrottles: shareWithProcess,
      reportAlive: signs.reportAlive,
      abandonCallsUpTo: signs.abandonCallsUpTo,
      holdsClaims: () => claimer !== undefined && claimer.held.length > 0,
    });
    const created = createClaimer({
      ...settings,
      ...shared,
      names,
      isDraining: () => pod.isDraining,
      limitOf: (name) => contracts.get(name)?.concurrency?.limit,
      onAbandoned: signs.abandonCallsUpTo,
      ...(attempts !== undefined && { attempts }),
      ...(backoff && { backoff }),
      ...(onLost && { onLost }),
    });
    claimer = created;
    return stoppable(created, async () => {
      await created.stop();
      await pod.stop();
      await database.close();
    });
  } catch (error) {
    await database.close();
    throw error;
  }
}
