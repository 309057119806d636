import { systemClock } from "../../base/clock.ts";
import { FlotillaError } from "../../base/errors.ts";
import type { Json } from "../../base/json.ts";
import { systemRandom } from "../../base/random.ts";
import type { PodLogsLinks, PodParts } from "../pod-parts.ts";
import { version } from "../version.ts";
import { createPlacedLogs, type PlacedLogs } from "./placed-logs.ts";
import {
  type PlaceAnswer,
  type PlaceQuestion,
  placeTopic,
} from "../../sessions/log/place-topic.ts";
import { createPodLogs, type PodLogsParts } from "./pod-logs.ts";
import {
  openMadeLogs,
  openStreamLogs,
  placeOnServers,
  type PodStreams,
  type StreamLogsParts,
  tryServers,
} from "./stream-logs.ts";

/** As long as an owner of rows counts as one without a new beat. */
const proofMs = 2_000;

/**
 * The logs of a pod's sessions on a store whose logs may be on NATS: they are where the store says. Refuses
 * what can't work there.
 */
export async function openPodLogs(
  given: PodLogsParts,
  sessions: { logs: number },
): Promise<Pick<PodParts, "openLogs" | "shareDocuments">> {
  const parts = { ...given, clock: systemClock, random: systemRandom };
  const { database, log, clusterId } = given;
  let opened: PodStreams | undefined;
  if (given.nats.settings.use === "all") opened = await openStreamLogs(parts, sessions);
  else if (clusterId !== undefined || (await placeOnServers(parts)) === "nats")
    opened = await openThere(parts);
  const openLogs = (links: PodLogsLinks): PlacedLogs => {
    const { bus, openStored } = links;
    const logs = createPlacedLogs({
      ...links,
      first: opened ? createPodLogs(given, opened, links) : openStored(),
      openStreams: async () => createPodLogs(given, await openMadeLogs(parts), links),
      database,
      clock: systemClock,
      log,
      proofMs,
    });
    const unserve = bus.serve(placeTopic, async (body): Promise<Json> => {
      const { step, from } = (body ?? {}) as Partial<PlaceQuestion>;
      // What servers have lost, only this pod has, and a log that is closed takes no more.
      const keeps = logs.journal.kept?.().length ?? 0;
      if (step === "ask" && keeps > 0) throw keepsLogs();
      await logs.look();
      const { lost = 0, unarchivedEntries = 0 } = logs.state() ?? {};
      if (lost > 0) throw keepsLogs();
      const isElsewhere = logs.isMoving || logs.place !== from;
      if (isElsewhere && step !== "leave") throw isLate();
      if (step === "ask" && from === "sql") await tryServers(parts);
      if (step === "prepare") await logs.prepare();
      const hasLeft = isElsewhere && (from === "sql" || unarchivedEntries === 0);
      return { release: version(), hasLeft } satisfies PlaceAnswer;
    });
    return {
      ...logs,
      // What is spread doesn't change any more.
      get place() {
        return logs.place;
      },
      get isMoving() {
        return logs.isMoving;
      },
      async stop() {
        unserve();
        await logs.stop();
      },
    };
  };
  // Where logs were moved, shares stay in the store, as those of pods do that were there before.
  const hasShares = given.nats.settings.use === "all" && opened !== undefined;
  return { openLogs, ...(hasShares && { shareDocuments: opened!.shares }) };
}

function isLate(): FlotillaError {
  const message = "has not followed the move before this one yet";
  return new FlotillaError("conflict", message);
}

function keepsLogs(): FlotillaError {
  const message = "has messages of logs that servers have lost, and stores them again";
  return new FlotillaError("conflict", message);
}

/** Where logs were moved to. A config that says nothing of them may lack what they need. */
async function openThere(parts: StreamLogsParts): Promise<PodStreams> {
  try {
    return await openMadeLogs(parts);
  } catch (error) {
    if (!(error instanceof FlotillaError)) throw error;
    const { code, message } = error;
    const what = "the logs of this store's sessions are on NATS, and this pod can't use them";
    throw new FlotillaError(code, `${what}: ${message}`, { cause: error });
  }
}
