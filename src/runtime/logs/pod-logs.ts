import { systemClock } from "../../base/clock.ts";
import { FlotillaError, messageOf } from "../../base/errors.ts";
import { systemRandom } from "../../base/random.ts";
import type { Bus } from "../../bus/bus.ts";
import { createBeatChannel } from "../../bus/nats/beat-channel.ts";
import { readSecret } from "../../bus/secret.ts";
import { type ArchivedJournal, createArchivedJournal } from "../../sessions/log/archive/journal.ts";
import { type Beats, createBeats } from "../../sessions/log/beats/beats.ts";
import { createHeads } from "../../sessions/log/heads.ts";
import { callUntilAnswered } from "../../store/retry.ts";
import type { PodLogsLinks, PodParts } from "../pod-parts.ts";
import { version } from "../version.ts";
import type { LogSide } from "./placed-logs.ts";
import {
  connectStreamLogs,
  openStreamShares,
  type StreamLogs,
  type StreamLogsParts,
} from "./stream-logs.ts";

/** What a pod's logs on streams are made of. */
export type PodLogsParts = Omit<StreamLogsParts, "clock" | "random"> & { podId: string };

/** Makes the logs of a pod's sessions on NATS, which the store follows. */
export function createPodLogs(
  given: PodLogsParts,
  opened: StreamLogs,
  { bus, host, agents, onArchived, onEnqueued }: PodLogsLinks,
): LogSide {
  const parts = { ...given, clock: systemClock, random: systemRandom };
  const beats = listen(parts, opened, {
    podId: parts.podId,
    host,
    agents,
    reachesStore: () => !journal.state().isAway,
    backlogged: () => journal.backlogged(),
    lagMs: () => journal.state().lagMs,
  });
  const heads = createHeads({ journal: beats, clock: parts.clock });
  const journal: ArchivedJournal = createArchivedJournal({
    ...parts,
    stream: opened.streamLog,
    bus,
    heads,
    standbyFor: () => beats.standbyFor(),
    isAway: given.clusterId !== undefined,
    onArchived,
    onEnqueued,
  });
  const ending = new AbortController();
  let keeping: Promise<void> | undefined;
  return {
    place: "nats",
    journal: { ...journal, behindMs: () => beats.behindMs() },
    cold: journal,
    presence: beats,
    fleet: beats.fleet,
    headSource: beats,
    listen: () => beats.start(),
    start() {
      beats.start();
      journal.start();
      keeping ??= keepSecret(parts, opened, ending.signal);
    },
    async stop() {
      ending.abort();
      await keeping;
      await journal.stop();
      beats.close();
    },
    state: () => journal.state(),
    meta: () => opened.streamLog.streams.state(),
  };
}

/**
 * Leaves a copy of the store's secret on the streams, without which a pod that starts while the store is away could
 * talk to no other.
 */
async function keepSecret(
  { database, clock, random, log }: StreamLogsParts,
  { streamLog }: StreamLogs,
  signal: AbortSignal,
): Promise<void> {
  const step = async () => {
    const secret = await readSecret(database);
    if (await streamLog.streams.keepSecret(secret)) return;
    throw new FlotillaError("store_busy", "the next read tells whether it is kept");
  };
  try {
    await callUntilAnswered(step, { clock, random, signal });
  } catch (error) {
    if (signal.aborted) return;
    const what =
      "no copy of the store's secret on the streams: no pod starts while the store is away";
    log.warn({ error: messageOf(error) }, what);
  }
}

/** What a pod without sessions has on NATS: its shares of throttles, of which other pods have theirs there. */
export async function openPodShares(
  given: PodLogsParts,
): Promise<Required<Pick<PodParts, "shareDocuments">>> {
  const parts = { ...given, clock: systemClock, random: systemRandom };
  return { shareDocuments: await openStreamShares(parts) };
}

function listen(
  { nats, ids, clock, log }: StreamLogsParts,
  { streamLog, deployment }: StreamLogs,
  own: Pick<
    Parameters<typeof createBeats>[0],
    "podId" | "host" | "agents" | "reachesStore" | "backlogged" | "lagMs"
  >,
): Beats {
  return createBeats({
    ...own,
    channel: createBeatChannel({ nats: nats.connection(), clock, origin: ids.next() }),
    journal: streamLog,
    clock,
    log,
    clusterId: deployment.clusterId,
    release: version(),
  });
}

/** The logs as a process sees them that owns none: it listens, and stores nothing there. */
export async function openConnectedLogs(parts: StreamLogsParts & { bus: Bus }): Promise<LogSide> {
  await parts.nats.connection().started.catch(() => {});
  const opened = await connectStreamLogs(parts);
  const beats = listen(parts, opened, { podId: undefined });
  const heads = createHeads({ journal: beats, clock: parts.clock });
  const journal = createArchivedJournal({ ...parts, stream: opened.streamLog, heads });
  beats.start();
  return {
    place: "nats",
    journal: { ...journal, behindMs: () => beats.behindMs() },
    cold: journal,
    presence: beats,
    fleet: beats.fleet,
    headSource: beats,
    listen() {},
    start() {},
    async stop() {
      await journal.stop();
      beats.close();
    },
    state: () => undefined,
    meta: () => opened.streamLog.streams.state(),
  };
}
