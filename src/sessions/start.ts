import {
  type LocalSessionsParts,
  type PodSessions,
  type PodSessionsOptions,
  startPodSessions,
} from "./pod.ts";
import { coldReads } from "../store/database.ts";
import { createService } from "./create-service.ts";
import { createHub } from "./delivery/hub.ts";
import type { Hub, HubLoad } from "./delivery/delivery.ts";
import { createForkCollector } from "./fork-collector.ts";
import { createInboxes } from "./inbox.ts";
import type { Journal } from "./log/journal.ts";
import { readInbox } from "./list.ts";
import { createCommandRouter } from "./log/command-router.ts";
import { createHeads } from "./log/heads.ts";
import { createPeople } from "./people/people.ts";
import type { SessionService } from "./service.ts";
import { createSessions, type Sessions } from "./sessions.ts";

/** Sessions in one process. A pod owns logs and makes answers; any other process only sends commands. */
export type LocalSessions = {
  readonly service: SessionService;
  readonly sessions: Sessions;
  readonly journal: Journal;
  readonly pod: PodSessions | undefined;
  load(): SessionLoad;
  /** Lets go of what was held for forks that are gone. */
  collectForks(): Promise<void>;
  /** True when a suspect answer has just begun here. */
  hasSuspect(): boolean;
  /** Takes no more turns and hands its logs on, or does both again. */
  drain(drains: boolean): void;
  /** True if nothing of sessions is left to do here, where it drains. */
  hasDrained(): boolean;
  /** Has lists read again that show these sessions, because the database has more of them now. */
  archived(sessionIds: ReadonlySet<string>): void;
  stop(options: { waitMs: number }): Promise<void>;
};

/** This process's current load from sessions. */
export type SessionLoad = HubLoad & { readonly turnsWaiting: number };

/** How old a known log owner may be where delivery is not urgent. */
const maxHeadAgeMs = 1_000;

export function createLocalSessions(
  parts: LocalSessionsParts,
  podOptions?: PodSessionsOptions,
): LocalSessions {
  const { journal, coldJournal = journal, bus, clock, log } = parts;
  const coldDatabase = coldReads(parts.database);
  const heads = createHeads({ journal: parts.headSource ?? journal, clock });
  const pod = podOptions && startPodSessions({ ...parts, heads, hub: () => hub }, podOptions);
  const owners = pod?.owners;
  const router = createCommandRouter({
    ...parts,
    heads,
    owners,
    create: () => journal.create(parts.logs),
  });
  const isLocal = (sessionId: string) => owners?.isFresh(sessionId) ?? false;
  const ownerOf = async (sessionId: string) =>
    (await heads.of(sessionId, maxHeadAgeMs))?.owner ?? undefined;
  const localHeader = (sessionId: string) =>
    isLocal(sessionId) ? owners?.of(sessionId)?.cachedHeader(sessionId) : undefined;
  const people = createPeople({
    bus,
    clock,
    isLocal,
    ownerOf,
    membersOf: (sessionId) => localHeader(sessionId)?.users,
  });
  const hub: Hub = createHub({
    bus,
    journal: coldJournal,
    liveJournal: journal,
    clock,
    log,
    isLocal,
    isSure: () => owners?.areFresh ?? true,
    ownerOf,
    people,
    owners: async () => {
      const all = (await heads.all(maxHeadAgeMs)).map(({ owner }) => owner);
      return [...new Set(all)].filter((owner) => owner !== null);
    },
    incarnationOf: async (sessionId) => (await heads.of(sessionId, Infinity))?.incarnation ?? "",
    localHeader(sessionId) {
      const owner = owners?.of(sessionId);
      const header = owner?.cachedHeader(sessionId);
      return owner && header && { header, incarnation: owner.head.incarnation };
    },
    ...(pod && { runner: pod.runner }),
  });
  const inboxes = createInboxes({
    hub,
    clock,
    log,
    readInbox: (tenant, user, options) => readInbox(coldDatabase, tenant, user, options),
    behindMs: () => parts.ahead?.behindMs(),
  });
  const forks = createForkCollector({ ...parts, router });
  const service = createService({
    ...parts,
    forks,
    coldJournal,
    heads,
    router,
    hub,
    inboxes,
    people,
    localHeader,
  });
  pod?.connect(router);
  let stopped: Promise<void> | undefined;
  const stop = async (waitMs: number): Promise<void> => {
    await pod?.stop({ waitMs });
    inboxes.close();
    people.close();
    hub.close();
    router.close();
    // At once: another process that asks is to look for the next owner, not to be told that none serves it.
    await bus.close();
  };
  return {
    service,
    sessions: createSessions(service),
    journal,
    pod,
    collectForks: forks.pass,
    load: () => ({ ...hub.load(), turnsWaiting: pod?.runner.waiting ?? 0 }),
    hasSuspect: () => pod?.runner.hasSuspect ?? false,
    drain: (drains) => pod?.drain(drains),
    hasDrained: () => pod?.hasDrained ?? true,
    archived: (sessionIds) => pod?.archived(sessionIds),
    stop: ({ waitMs }) => (stopped ??= stop(waitMs)),
  };
}
