import {
  movableClock,
  type MovableClock,
  eventLoopTurns,
} from "../../base/contract/movable-clock.ts";
import { FlotillaError } from "../../base/errors.ts";
import { silentLogger } from "../../base/log.ts";
import type { Bus } from "../../bus/bus.ts";
import { type Carry, createMemoryBus } from "../../bus/memory-bus.ts";
import type { Chunk } from "../../protocol/chunk.ts";
import type { Entry } from "../../protocol/message.ts";
import { type Header, newHeader, type Turn } from "../conversation/header.ts";
import type { Journal } from "../log/journal.ts";
import { createMemoryJournal } from "../log/memory-journal.ts";
import type { LiveChunks } from "../runner.ts";
import type { Joined, JoinPosition, FeedEvent, Sink } from "../service.ts";
import { createHub } from "../delivery/hub.ts";
import type { CommittedSession, Hub, HubLimits } from "../delivery/delivery.ts";

/** Several hubs over one journal and one bus, with an owner and runners that a test plays by hand. */
export type HubHarness = {
  readonly clock: MovableClock;
  readonly journal: Journal;
  /** Reads wait while this is set, until it is resolved. */
  gate: PromiseWithResolvers<void> | undefined;
  /**
   * How often the journal was read, how many reads there were at once, and how often the owner of a session
   * was looked up.
   */
  readonly reads: { headers: number; pages: number; most: number; looks: number };
  /** The pod that owns the log, and the one that the others take for the owner. */
  owner: string | undefined;
  seenOwner: string | undefined;
  /** Whether who owns logs can't be looked up. */
  isAway: boolean;
  /** Whether the owner has sessions in memory. */
  isLoaded: boolean;
  /** Whether an owner's last beat is fresh. */
  isSure: boolean;
  /** Of the log, as far as readers of the journal know. */
  incarnation: string;
  /** Makes another pod the owner, or none, and notifies the hubs that it concerns. */
  own(address: string | undefined): void;
  hub(address: string): Hub;
  runner(address: string): FakeRunner;
  header(sessionId: string): Header;
  /** Stores a change; no process learns of it before an owner's hub gets it. */
  store(sessionId: string, change: Change): Promise<CommittedSession>;
  /** Stores a change and tells the owner's hub. */
  commit(sessionId: string, change: Change): Promise<void>;
  close(): Promise<void>;
};

export type Change = {
  /** How many messages are said. */
  say?: number;
  /** Starts a turn, or changes the one that runs; null ends it with an answer. */
  turn?: Partial<Turn> | null;
  status?: Header["status"];
  users?: readonly string[];
  bytes?: number;
};

export type FakeRunner = {
  /** Makes so many chunks more of the turn that the header names. */
  produce(header: Header, count: number): void;
  /** The same, but they are told of later: what is asked for meanwhile has them already. */
  prepare(header: Header, count: number): void;
  /** Tells of what was prepared. */
  flush(): void;
  /** What it has made of this turn, as text. */
  text(sessionId: string): string;
  stop(sessionId: string): void;
};

export type HubHarnessOptions = {
  carry?: Carry;
  limits?: Partial<HubLimits>;
  /** Reads for live clients don't wait for the semaphore. */
  liveApart?: boolean;
  /** What is between a hub and its bus. */
  between?: (bus: Bus) => Bus;
};

export async function createHubHarness(options: HubHarnessOptions = {}): Promise<HubHarness> {
  const clock = movableClock();
  let made = 0;
  const stored = createMemoryJournal({ ids: { next: () => `id-${++made}` } });
  await stored.create(1);
  const exchange = createMemoryBus(options.carry && { carry: options.carry });
  const pods = new Map<string, { hub: Hub; runner: FakeRunner; bus: Bus }>();
  const headers = new Map<string, Header>();
  const reads = { headers: 0, pages: 0, most: 0, looks: 0 };
  let underWay = 0;

  const slowly = async <Found>(read: () => Promise<Found>): Promise<Found> => {
    reads.most = Math.max(reads.most, ++underWay);
    try {
      await harness.gate?.promise;
      return await read();
    } finally {
      underWay--;
    }
  };
  const journal: Journal = {
    ...stored,
    header: (sessionId) => slowly(() => (reads.headers++, stored.header(sessionId))),
    entries: (sessionId, page) => slowly(() => (reads.pages++, stored.entries(sessionId, page))),
  };

  const podAt = (address: string) => {
    const known = pods.get(address);
    if (known) return known;
    const connected = exchange.connect(address, { clock });
    const bus = options.between?.(connected) ?? connected;
    const { runner, snapshot } = createFakeRunner((live) => hub.chunks(live));
    const hub = createHub({
      bus,
      journal,
      ...(options.liveApart && { liveJournal: stored }),
      clock,
      log: silentLogger,
      isLocal: () => (reads.looks++, harness.owner === address),
      isSure: () => harness.isSure,
      async ownerOf() {
        await harness.gate?.promise;
        return harness.seenOwner;
      },
      async owners() {
        if (harness.isAway) throw new FlotillaError("store_unavailable", "the store is away");
        return harness.seenOwner === undefined ? [] : [harness.seenOwner];
      },
      localHeader: (sessionId) => {
        const header = headers.get(sessionId);
        return harness.isLoaded && header ? { header, incarnation: "id-1" } : undefined;
      },
      incarnationOf: async () => harness.incarnation,
      runner: { snapshot },
      ...(options.limits && { limits: options.limits }),
    });
    const pod = { hub, runner, bus };
    pods.set(address, pod);
    return pod;
  };

  const harness: HubHarness = {
    clock,
    journal,
    gate: undefined,
    reads,
    owner: "owner",
    seenOwner: "owner",
    isAway: false,
    isLoaded: true,
    isSure: true,
    incarnation: "id-1",
    own(address) {
      const concerned = [harness.owner, address].filter((each) => each !== undefined);
      harness.owner = address;
      for (const each of concerned) podAt(each).hub.ownersMoved();
    },
    hub: (address) => podAt(address).hub,
    runner: (address) => podAt(address).runner,
    header: (sessionId) => headers.get(sessionId)!,
    async store(sessionId, change) {
      const { header, entries } = changed(headers.get(sessionId) ?? fresh(sessionId), change);
      const [head] = await stored.heads();
      const recordId = `record-${++made}`;
      const none = { metadata: [], reads: [], checkpoints: [], steps: [], stepsOver: [] };
      const record = { ...none, recordId, headers: [header] };
      const named = entries.map((entry) => ({ ...entry, sessionId, clientId: null }));
      const committed = await stored.commit(head!, { ...record, entries: named });
      if (committed.type !== "committed") throw new Error(committed.type);
      headers.set(sessionId, header);
      const { incarnation, logId, offset } = committed.head;
      return { sessionId, entries: named, header, incarnation, logId, offset };
    },
    async commit(sessionId, change) {
      const committed = await harness.store(sessionId, change);
      if (harness.owner !== undefined) podAt(harness.owner).hub.committed([committed]);
    },
    async close() {
      for (const { hub, bus } of pods.values()) {
        hub.close();
        await bus.close();
      }
    },
  };
  for (const address of ["owner", "next", "runner", "second", "gateway"]) podAt(address);
  return harness;
}

export type Client = {
  readonly events: FeedEvent[];
  readonly joined: Joined;
  /** The seqs that it was told of since it joined or was reset. */
  readonly seqs: number[];
  readonly state: string;
  /** The answer as it has assembled it, of the turn that it was told of last. */
  readonly answer: { epoch: number; attempt: number; next: number; text: string };
  readonly failed: unknown;
};

/** Joins, and holds every event against what a client may expect. */
export function joinAs(
  hub: Hub,
  sessionId: string,
  place: JoinPosition = { lastSeq: 0 },
  sink: Partial<Sink<FeedEvent>> = {},
): Client {
  const events: FeedEvent[] = [];
  let seqs: number[] = [];
  let last = place.lastSeq;
  let state = "";
  let failed: unknown;
  const answer = { epoch: 0, attempt: 0, next: 0, text: "" };
  const expectThat = (holds: boolean, what: string) => {
    if (!holds) failed ??= new Error(`${what}: ${JSON.stringify(events)}`);
  };
  const see = (event: FeedEvent) => {
    if (event.type === "joined" || event.type === "state") state = JSON.stringify(event.state);
    if (event.type === "reset") {
      last = 0;
      seqs = [];
    }
    if (event.type === "entries") {
      for (const { seq } of event.entries) {
        expectThat(seq === last + 1, `entry ${seq} came after ${last}`);
        last = seq;
        seqs.push(seq);
      }
    }
    if (event.type !== "chunks") return;
    const { epoch, attempt, index, nextIndex, chunks } = event;
    const isLower = epoch < answer.epoch || (epoch === answer.epoch && attempt < answer.attempt);
    expectThat(!isLower, `chunks of (${epoch}, ${attempt}) came late`);
    const turn = JSON.parse(state) as { epoch?: number; attempt?: number };
    expectThat(turn.epoch === epoch && turn.attempt === attempt, "chunks came without their turn");
    const isSame = epoch === answer.epoch && attempt === answer.attempt;
    if (index === 0) Object.assign(answer, { epoch, attempt, next: 0, text: "" });
    else expectThat(isSame && index === answer.next, `chunk ${index} came, not ${answer.next}`);
    answer.text += chunks.map((chunk) => String(chunk["text"])).join("");
    answer.next = nextIndex ?? index + chunks.length;
  };
  const joined = hub.join(sessionId, place, {
    push(event) {
      events.push(event);
      see(event);
      return sink.push?.(event) ?? true;
    },
    fail(error) {
      failed ??= error;
      sink.fail?.(error);
    },
    ...(sink.drained && { drained: sink.drained }),
  });
  joined.ready.catch(() => {});
  return {
    events,
    joined,
    answer,
    get seqs() {
      return seqs;
    },
    get state() {
      return state;
    },
    get failed() {
      return failed;
    },
  };
}

/** Lets envelopes and reads come through. */
export const settled = () => eventLoopTurns(8);

export function upTo(last: number, first = 1): number[] {
  return Array.from({ length: Math.max(0, last - first + 1) }, (_, index) => first + index);
}

function createFakeRunner(tell: (live: LiveChunks) => void) {
  const made = new Map<string, { epoch: number; attempt: number; texts: string[] }>();
  const snapshot = (sessionId: string): LiveChunks | undefined => {
    const answer = made.get(sessionId);
    if (!answer) return undefined;
    const { epoch, attempt, texts } = answer;
    const chunks = [chunkOf(texts.join(""))];
    const nextIndex = texts.length;
    return { sessionId, epoch, attempt, index: 0, fromStart: true, nextIndex, chunks };
  };
  let prepared: LiveChunks[] = [];
  const prepare = ({ sessionId, work }: Header, count: number) => {
    const { epoch, attempt } = work!;
    const known = made.get(sessionId);
    const isSame = known?.epoch === epoch && known.attempt === attempt;
    const answer = isSame ? known : { epoch, attempt, texts: [] as string[] };
    made.set(sessionId, answer);
    const index = answer.texts.length;
    const texts = upTo(index + count, index + 1).map((each) => `${epoch}.${attempt}.${each} `);
    answer.texts.push(...texts);
    const chunks = texts.map(chunkOf);
    const last = prepared.at(-1);
    const goesOn = isSame && last?.sessionId === sessionId;
    if (goesOn) prepared[prepared.length - 1] = { ...last, chunks: [...last.chunks, ...chunks] };
    else prepared.push({ sessionId, epoch, attempt, index, chunks });
  };
  const flush = () => {
    const all = prepared;
    prepared = [];
    for (const live of all) tell(live);
  };
  const runner: FakeRunner = {
    prepare,
    flush,
    produce(header, count) {
      prepare(header, count);
      flush();
    },
    text: (sessionId) => made.get(sessionId)?.texts.join("") ?? "",
    stop: (sessionId) => void made.delete(sessionId),
  };
  return { runner, snapshot };
}

function chunkOf(text: string): Chunk {
  return { type: "text-delta", id: "1", text, delta: text } as Chunk;
}

function changed(before: Header, change: Change): { header: Header; entries: Entry[] } {
  let header: Header = { ...before, users: change.users ?? before.users };
  if (change.status) header = { ...header, status: change.status };
  const entries: Entry[] = [];
  const say = (more: Partial<Entry>) => {
    const seq = header.lastSeq + 1;
    header = { ...header, lastSeq: seq };
    entries.push({ ...entryOf(seq, change.bytes ?? 0), ...more });
  };
  for (let said = 0; said < (change.say ?? 0); said++) say({});
  const { work } = header;
  if (change.turn === null && work) {
    say({ role: "assistant", author: "agent", epoch: work.epoch, outcome: "completed" });
    header = { ...header, work: null };
  } else if (change.turn) {
    const epoch = work ? work.epoch : header.epoch + 1;
    const turn = work?.type === "turn" ? work : freshTurn(epoch, header.lastSeq);
    header = { ...header, epoch, work: { ...turn, ...change.turn } };
    header = { ...header, epoch: header.work!.epoch };
  }
  return { header, entries };
}

function entryOf(seq: number, bytes: number): Entry {
  const parts = [{ type: "text", text: `message ${seq}${"x".repeat(bytes)}` }];
  const said = { kind: "message", role: "user", author: "ann", tokens: 1, atMs: 0 } as const;
  return { ...said, seq, messageId: `m${seq}`, parts };
}

function freshTurn(epoch: number, upToSeq: number): Turn {
  return {
    type: "turn",
    epoch,
    attempt: 1,
    lost: 0,
    agent: "agent",
    runner: "runner",
    upToSeq,
    trigger: "submit",
    messageId: `answer-${epoch}`,
    replaces: null,
    stopping: false,
  };
}

function fresh(sessionId: string): Header {
  const made = { sessionId, tenant: "acme", agents: ["agent"], users: ["ann"] };
  return newHeader(made, { nowMs: 0 });
}
