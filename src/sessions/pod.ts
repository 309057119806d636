import type { Json } from "../base/json.ts";
import type { AgentBook } from "./agents/registry.ts";
import type { AgentFacts, Facts, Reply } from "./conversation/command.ts";
import type { HereParts } from "./start.ts";
import type { Header } from "./conversation/header.ts";
import type { Hub } from "./delivery/delivery.ts";
import { answerMark } from "./validate.ts";
import type { Courier } from "./log/command-router.ts";
import type { Fleet } from "./log/fleet.ts";
import {
  createOwners,
  type Heads,
  type LogEvent,
  type Owned,
  type Owners,
  type Taken,
} from "./log/ownership.ts";
import { createOverseer, type Overseer } from "./log/turn-monitor.ts";
import { createOwner, type CommittedRecord } from "./log/owner.ts";
import { logOf } from "./log/placement.ts";
import type { Runner, WorkName } from "./runner.ts";

/** What a pod does for sessions: it owns logs, and makes answers. */
export type PodSessions = {
  readonly owners: Owners;
  readonly runner: Runner;
  /** Answers are brought to owners through this. */
  connect(courier: Courier): void;
  stop(options: { waitMs: number }): Promise<void>;
};

export type PodSessionsOptions = {
  podId: string;
  host: string | null;
  isGone: (host: string) => boolean;
  fleet: Fleet;
  book: AgentBook;
  createRunner: (parts: RunnerLinks) => Runner;
  onEvent: (event: LogEvent) => void;
};

/** How a runner reaches the rest. */
export type RunnerLinks = {
  ask: Courier["ask"];
  live: { chunks: Hub["chunks"] };
};

type PodParts = HereParts & { heads: Heads; hub: () => Hub };

const nameMs = 1_000;
const defaultDebounceMs = 500;
const answerMs = 1_000;

export function startPodSessions(parts: PodParts, options: PodSessionsOptions): PodSessions {
  const { bus, clock, ids, log, journal, heads } = parts;
  const { podId, fleet, book } = options;
  const overseers = new Map<number, Overseer>();
  /** Pods whose processes are known to have ended. Their ids never come again. */
  const gonePods = new Set<string>();
  let courier: Courier | undefined;
  let stopping = false;
  let cancelNaming = () => {};

  const runner = options.createRunner({
    ask: (...asked) => courier!.ask(...asked),
    live: { chunks: (live) => parts.hub().chunks(live) },
  });

  const factsAbout = (tenant: string, name: string): AgentFacts | undefined =>
    book.facts(tenant, name) ?? fleet.factsOf(name);
  const runnerFor = (tenant: string, name: string): string | null => {
    const here = book.facts(tenant, name) !== undefined;
    if (here && !stopping) return podId;
    const able = fleet.withAgent(name);
    // A stored agent runs on any pod. One in this pod's code may be on no other, whatever the fleet knows
    // of this pod: its own row needn't be up any more.
    const isStored = here && !book.isInCode(name);
    const others = (able.length > 0 || !isStored ? able : [...fleet.pods().keys()]).filter(
      // One that is gone is still known for a while.
      (each) => each !== podId && !gonePods.has(each),
    );
    return others[parts.random.uint32() % Math.max(1, others.length)] ?? null;
  };
  const facts = (tenant: string): Facts => ({
    nowMs: clock.now(),
    newId: () => answerMark + ids.next(),
    agent: (name) => factsAbout(tenant, name),
    runnerFor: (name) => runnerFor(tenant, name),
  });
  const prime = (tenant: string, names: readonly string[]): Promise<void> | undefined => {
    const missing = names.filter((name) => factsAbout(tenant, name) === undefined);
    return missing.length === 0 ? undefined : book.prime(tenant, missing);
  };

  const start = (to: string, header: Header): void => {
    if (to === podId) runner.start(header);
    else bus.send(to, topics.start, { header } as unknown as Json);
  };
  const abort = (to: string, which: WorkName, keep: boolean): void => {
    if (to === podId) runner.abort(which, { keep });
    else bus.send(to, topics.abort, { which, keep } as unknown as Json);
  };
  const checkpoint = async ({ sessionId, epoch }: WorkName): Promise<Reply | undefined> => {
    const stored = await journal.checkpoint(sessionId);
    return stored?.epoch === epoch ? (JSON.parse(stored.body) as Reply) : undefined;
  };

  const own = async (
    head: CommittedRecord["head"],
    busy: readonly Header[],
    { onFenced, isFresh, gone }: Taken,
  ): Promise<Owned> => {
    if (gone !== null && gone !== podId) gonePods.add(gone);
    await Promise.all(busy.flatMap(({ tenant, agents }) => prime(tenant, agents) ?? []));
    const overseer = createOverseer({
      clock,
      log,
      start,
      abort,
      checkpoint,
      submit: (header, command) => owner.submit(header.tenant, header.sessionId, command),
      isGone: (runner) => gonePods.has(runner),
      debounceMs: (tenant, name) => factsAbout(tenant, name)?.debounceMs ?? defaultDebounceMs,
    });
    const owner = createOwner(head, busy, {
      ...parts,
      facts,
      prime,
      onFenced,
      isFresh,
      onCommitted(committed) {
        for (const header of committed.record.headers) overseer.see(header);
        for (const [sessionId, effect] of committed.effects) overseer.perform(sessionId, effect);
        parts.hub().committed(deliveries(committed, owner.look));
        const { record, durationMs } = committed;
        options.onEvent({ type: "record", entries: record.entries.length, durationMs });
      },
    });
    overseers.set(head.logId, overseer);
    for (const header of busy) overseer.see(header);
    return {
      owner,
      end() {
        overseer.close();
        if (overseers.get(head.logId) === overseer) overseers.delete(head.logId);
      },
    };
  };

  const owners = createOwners({
    ...parts,
    ...options,
    onEvent(event) {
      if (event.type === "log_owned") parts.hub().ownersMoved();
      options.onEvent(event);
    },
    pods: fleet.pods,
    own,
    wouldTake: async (to) =>
      bus.request(to, topics.ready, null, { timeoutMs: answerMs }).then(
        (answer) => answer === true,
        () => false,
      ),
    offer: (to) => bus.send(to, topics.offer, null),
  });
  fleet.start();

  const unserve = [
    bus.serve(topics.start, (body) => {
      runner.start((body as unknown as { header: Header }).header);
      return null;
    }),
    bus.serve(topics.abort, (body) => {
      const { which, keep } = body as unknown as { which: WorkName; keep: boolean };
      runner.abort(which, { keep });
      return null;
    }),
    bus.serve(topics.named, (body) => {
      named((body as unknown as { works: WorkName[] }).works);
      return null;
    }),
    bus.serve(topics.ready, () => !stopping),
    bus.serve(topics.offer, () => {
      void fleet.refresh().then(owners.look);
      return null;
    }),
  ];

  const named = (works: readonly WorkName[]): void => {
    for (const overseer of overseers.values()) overseer.named(works);
  };

  /** Says what this pod works on to whoever owns it. */
  const nameAll = (): void => {
    cancelNaming = clock.after(nameMs, nameAll);
    const works = runner.running();
    if (works.length === 0) return;
    named(works);
    const byOwner = Map.groupBy(works, ({ sessionId }) => {
      const logs = heads.last.length;
      return logs === 0 ? null : (heads.last[logOf(sessionId, logs)]?.owner ?? null);
    });
    for (const [to, theirs] of byOwner) {
      if (to !== null && to !== podId) {
        bus.send(to, topics.named, { works: theirs } as unknown as Json);
      }
    }
  };
  cancelNaming = clock.after(nameMs, nameAll);

  return {
    owners,
    runner,
    connect(given) {
      courier = given;
    },
    async stop({ waitMs }) {
      stopping = true;
      await runner.stop({ waitMs });
      await owners.stop();
      cancelNaming();
      for (const each of unserve) each();
      fleet.close();
    },
  };
}

const topics = {
  start: "session.start",
  abort: "session.abort",
  named: "session.named",
  offer: "session.offer",
  ready: "session.ready",
} as const;

const none: readonly string[] = [];

/** What a record brings to those who follow its sessions. */
function deliveries(
  { head, record, formerUsers }: CommittedRecord,
  look: (sessionId: string) => Header | undefined,
): Parameters<Hub["committed"]>[0] {
  const { logId, offset, incarnation } = head;
  const entries = Map.groupBy(record.entries, ({ sessionId }) => sessionId);
  const headers = new Map(record.headers.map((header) => [header.sessionId, header]));
  // Who has read something leaves the header as it is, and still changes an inbox.
  for (const { sessionId } of record.reads) {
    const header = headers.get(sessionId) ?? look(sessionId);
    if (header) headers.set(sessionId, header);
  }
  return Array.from(headers.values(), (header) => ({
    sessionId: header.sessionId,
    entries: entries.get(header.sessionId) ?? [],
    header,
    incarnation,
    logId,
    offset,
    formerUsers: formerUsers.get(header.sessionId) ?? none,
  }));
}
