import { hasCode } from "../../base/errors.ts";
import { checkNats, type NatsConfig, natsName } from "../../bus/nats/config.ts";
import { livePodAges } from "../../pods/pods.ts";
import { moveOf } from "../../promote/logs/move-logs.ts";
import { plainSecrets } from "../../sessions/agents/registry.ts";
import { logPlaceOf } from "../../sessions/log/place.ts";
import type { Database } from "../../store/database.ts";
import { type OpenCounts, readOpenCounts } from "../../tasks/inspect/depth.ts";
import { oneLine } from "../output.ts";
import { type Check, failed, ok, warn } from "./check.ts";

export type FleetOptions = {
  /** Whether the config has a codec. Default false. */
  hasCodec?: boolean;
  /** The NATS of the config. Default none. */
  nats?: NatsConfig;
};

type Pod = {
  readonly podId: string;
  readonly ageMs: number;
  readonly names: readonly string[];
  /** The namespace of NATS that it uses, if it does. */
  readonly nats: string | undefined;
};

// By the database's clock, for display. Pods judge each other by beats.
const silentAfterMs = 30_000;
const maxNamesShown = 5;

/**
 * Whether pods run, whether they have a handler for each task, whether all claims are theirs, whether the
 * secrets of stored agents are encoded, and whether the logs of sessions are where this config says.
 */
export async function checkFleet(
  database: Database,
  { hasCodec = false, nats }: FleetOptions,
): Promise<Check[]> {
  const pods = (await livePodAges(database)).map(({ podId, ageMs, metadata }) => ({
    podId,
    ageMs,
    ...toldBy(metadata),
  }));
  const { pending, claimed } = await readOpenCounts(database);
  const live = pods.filter((pod) => pod.ageMs < silentAfterMs);
  return [
    podCheck(pods, live),
    workerCheck(pending, live),
    claimCheck(claimed, live),
    ...busCheck(live, nats && natsName(checkNats(nats))),
    await secretsCheck(database, hasCodec),
    ...(await logPlaceCheck(database, { hasNats: nats !== undefined })),
  ];
}

async function secretsCheck(database: Database, hasCodec: boolean): Promise<Check> {
  let agents: number;
  try {
    agents = await plainSecrets(database);
  } catch (error) {
    // Only pods may read them.
    if (hasCode(error, "store_read_only"))
      return ok("secrets", "this role may not read those of stored agents");
    throw error;
  }
  if (agents === 0) return ok("secrets", "no stored agent has one in plain text");
  const again = "set their headers and secrets again with `flotilla agents set`";
  const text = `${agents} stored agents have headers or secrets in plain text, which a copy of the store reveals`;
  return hasCodec
    ? warn("secrets", `${text}, from before there was a codec: ${again}`)
    : warn(
        "secrets",
        `${text}: name a \`codec\` in the config, such as encryption(), then ${again}`,
      );
}

function podCheck(pods: readonly Pod[], live: readonly Pod[]): Check {
  const silent = pods.length - live.length;
  if (live.length === 0) {
    return warn(
      "pods",
      `none is running${silent > 0 ? `; ${silent} without a recent heartbeat` : ""}`,
    );
  }
  const oldest = Math.max(...live.map((pod) => pod.ageMs));
  const text = `${live.length} running, last heartbeats at most ${Math.max(0, oldest)} ms ago`;
  return silent === 0
    ? ok("pods", text)
    : warn("pods", `${text}; ${silent} without a recent heartbeat will be marked down`);
}

function workerCheck(pending: OpenCounts["pending"], live: readonly Pod[]): Check {
  const known = new Set(live.flatMap((pod) => pod.names));
  const waiting = pending.filter(({ name }) => !known.has(name));
  if (waiting.length === 0)
    return ok("workers", "a running pod has a handler for every pending task");
  const names = waiting
    .slice(0, maxNamesShown)
    .map(({ name, tasks }) => `${oneLine(name, 60)} (${tasks})`);
  const more = waiting.length - names.length;
  return warn(
    "workers",
    `tasks are pending that no running pod has a handler for: ${names.join(", ")}${more > 0 ? ` and ${more} more names` : ""}`,
  );
}

function claimCheck(claimed: OpenCounts["claimed"], live: readonly Pod[]): Check {
  const ids = new Set(live.map((pod) => pod.podId));
  const stuck = claimed.filter(({ podId }) => !ids.has(podId));
  const tasks = stuck.reduce((sum, each) => sum + each.tasks, 0);
  if (tasks === 0) return ok("claims", "every claimed task belongs to a running pod");
  return warn(
    "claims",
    `${tasks} tasks are claimed by pods that aren't running; ${ids.size > 0 ? "they will be recovered within seconds" : "they go on as soon as a pod runs"}`,
  );
}

/** Whether all pods hear each other. */
function busCheck(live: readonly Pod[], own: string | undefined): Check[] {
  const others = live.filter((pod) => pod.nats !== own);
  if (others.length > 0) {
    const used =
      own === undefined ? "use NATS, and this config doesn't" : `don't use NATS as ${own}`;
    return [
      warn(
        "bus",
        `${others.length} of ${live.length} running pods ${used}: pods that differ in it miss each other's envelopes, so give all the same \`nats\``,
      ),
    ];
  }
  return own === undefined ? [] : [ok("bus", `all running pods use NATS as ${own}`)];
}

/** What a pod says of itself, which may be anything. */
function toldBy(metadata: string): Pick<Pod, "names" | "nats"> {
  try {
    const { names, nats } = JSON.parse(metadata) as { names?: unknown; nats?: unknown };
    return {
      names: Array.isArray(names) ? names.filter((name) => typeof name === "string") : [],
      nats: typeof nats === "string" ? nats : undefined,
    };
  } catch {
    return { names: [], nats: undefined };
  }
}

/** Whether the logs of sessions are where this config says, and in one place. Says nothing where all is well. */
async function logPlaceCheck(
  database: Pick<Database, "read">,
  { hasNats }: { hasNats: boolean },
): Promise<Check[]> {
  const name = "logs";
  const [{ place }, move] = await Promise.all([logPlaceOf(database), moveOf(database)]);
  if (move?.state === "copying") {
    const isNats = move.to === "nats";
    const command = `\`flotilla promote --to ${isNats ? "nats" : "postgres"}\``;
    const whither = isNats ? "to NATS" : "back to the database";
    const isAtWork = move.holder !== null && move.heldMs > 0;
    const text = `the logs of sessions are on their way ${whither}, and ${
      isAtWork ? "a process is at it: wait until it is done" : "no process is at it"
    }`;
    if (isAtWork) return [warn(name, text)];
    const waits = "sessions may wait until that is done";
    return [failed(name, `${text}: run ${command} again with the \`nats\` of the pods; ${waits}`)];
  }
  if (place === "sql" || hasNats) return [];
  const text = "the logs of this store's sessions are on NATS, and this config has no `nats`";
  return [
    failed(
      name,
      `${text}: give it that of the pods, or move the logs back by \`flotilla promote --to postgres\` with theirs`,
    ),
  ];
}
