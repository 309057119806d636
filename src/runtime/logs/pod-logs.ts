import { systemClock } from "../../base/clock.ts";
import { systemRandom } from "../../base/random.ts";
import type { Bus } from "../../bus/bus.ts";
import { createBeatChannel } from "../../bus/nats/beat-channel.ts";
import { type ArchivedJournal, createArchivedJournal } from "../../sessions/log/archive/journal.ts";
import { type Beats, createBeats } from "../../sessions/log/beats/beats.ts";
import { createHeads } from "../../sessions/log/heads.ts";
import type { PodParts } from "../pod-parts.ts";
import { version } from "../version.ts";
import {
  connectStreamLogs,
  openStreamLogs,
  type StreamLogs,
  type StreamLogsParts,
} from "./stream-logs.ts";

/** What a pod's logs on streams are made of. */
export type PodLogsParts = Omit<StreamLogsParts, "clock" | "random"> & { podId: string };

/** Opens the logs of a pod's sessions on NATS, which the store follows. Refuses what can't work. */
export async function openPodLogs(
  given: PodLogsParts,
  sessions: { logs: number },
): Promise<NonNullable<PodParts["openLogs"]>> {
  const parts = { ...given, clock: systemClock, random: systemRandom };
  const opened = await openStreamLogs(parts, sessions);
  return ({ bus, host, agents, onArchived, onEnqueued }) => {
    const beats = listen(parts, opened, {
      podId: parts.podId,
      host,
      agents,
      reachesStore: () => !journal.state().isAway,
      backlogged: () => journal.backlogged(),
    });
    const heads = createHeads({ journal: beats, clock: parts.clock });
    const journal: ArchivedJournal = createArchivedJournal({
      ...parts,
      stream: opened.streamLog,
      bus,
      heads,
      standbyFor: () => beats.standbyFor(),
      onArchived,
      onEnqueued,
    });
    return {
      journal,
      presence: beats,
      fleet: beats.fleet,
      headSource: beats,
      start() {
        beats.start();
        journal.start();
      },
      async stop() {
        await journal.stop();
        beats.close();
      },
      state: journal.state,
    };
  };
}

function listen(
  { nats, ids, clock, log }: StreamLogsParts,
  { streamLog, deployment }: StreamLogs,
  own: Pick<
    Parameters<typeof createBeats>[0],
    "podId" | "host" | "agents" | "reachesStore" | "backlogged"
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
export type ConnectedLogs = { readonly journal: ArchivedJournal; readonly beats: Beats };

export async function openConnectedLogs(
  parts: StreamLogsParts & { bus: Bus },
): Promise<ConnectedLogs> {
  await parts.nats.connection().started.catch(() => {});
  const opened = await connectStreamLogs(parts);
  const beats = listen(parts, opened, { podId: undefined });
  const heads = createHeads({ journal: beats, clock: parts.clock });
  const journal = createArchivedJournal({ ...parts, stream: opened.streamLog, heads });
  beats.start();
  return { journal, beats };
}
