import { setTimeout as wait } from "node:timers/promises";
import type { WebSocket } from "ws";
import { type Bench, playRole } from "../roles.ts";
import { percentile } from "../statistics.ts";
import { countUsage } from "../usage.ts";
import { type Answer, dial, inParts, join, makeSessions } from "./dial.ts";
import { joinFrame, sendFrame } from "./frames.ts";

/** A process of clients, of whom each writes in a session of its own. */
export type LoadParams = {
  readonly socketUrl: string;
  /** Where sessions are made. Absent: it is the echo, which has none. */
  readonly httpUrl?: string;
  /** Their ids; of thousands, how they begin and how many there are. */
  readonly sessions: readonly string[] | { readonly prefix: string; readonly count: number };
  /** The server of each session, if there are several. Default: `socketUrl`. */
  readonly sockets?: readonly string[];
  /** How many clients share the sessions, each writing in its own by turns. Default: one for each. */
  readonly clients?: number;
  /** Whether clients also follow their sessions. Default: they only write. */
  readonly joins?: boolean;
  readonly work: LoadWork;
};

export type LoadWork =
  /** One message at a time, each some while after the last was answered. */
  | {
      readonly type: "alone";
      /** How many go before, without a pause, so that the code is compiled. */
      readonly warmUps: number;
      readonly count: number;
      readonly everyMs: number;
    }
  /** So many messages of each client are unanswered at any moment. */
  | {
      readonly type: "closed";
      readonly inFlight: number;
      readonly warmMs: number;
      readonly runMs: number;
    }
  /** So many messages a second, however long the answers take. */
  | {
      readonly type: "open";
      readonly perSecond: number;
      readonly warmMs: number;
      readonly runMs: number;
    };

export type Loaded = {
  readonly acked: number;
  readonly refused: number;
  /** Sent and never answered, though it was waited for. */
  readonly lost: number;
  readonly wallMs: number;
  readonly cpuMs: number;
  readonly latency: Percentiles;
  /** How much later than it should have been a message was sent, which is part of its latency. */
  readonly late: Percentiles;
};

export type Percentiles = { readonly p50: number; readonly p95: number; readonly p99: number };

/** Writes in its sessions by turns. */
type Client = { readonly socket: WebSocket; readonly sessions: readonly string[]; next: number };

const answerLimitMs = 10_000;
// More than this at once would be sent by no more than a few clients.
const tickMs = 1;

playRole(
  async (params: LoadParams, bench) => {
    const load = createLoad();
    const { socketUrl, sockets, httpUrl } = params;
    const sessions = idsOf(params.sessions);
    const { clients: count = sessions.length } = params;
    if (httpUrl !== undefined) await makeSessions(httpUrl, sessions);
    const each = Array.from({ length: count }, (_, client) => ({
      url: sockets?.[client] ?? socketUrl,
      sessions: sessions.filter((__, at) => at % count === client),
    }));
    const clients = await inParts(each, 100, async ({ url, sessions: own }): Promise<Client> => {
      const socket = await dial(url, load.answered);
      if (params.joins) for (const session of own) await join(socket, joinFrame(session, 0));
      return { socket, sessions: own, next: 0 };
    });
    bench.tell("ready");
    await bench.heard("go");
    const { work } = params;
    if (work.type === "alone") return alone(load, clients[0]!, work, bench);
    if (work.type === "closed") return closed(load, clients, work, bench);
    return open(load, clients, work, bench);
  },
  { ends: "at once" },
);

function idsOf(sessions: LoadParams["sessions"]): readonly string[] {
  if (!("prefix" in sessions)) return sessions;
  return Array.from({ length: sessions.count }, (_, at) => `${sessions.prefix}-${at}`);
}

type Load = ReturnType<typeof createLoad>;

/** Sends, and notes when the answer comes. */
function createLoad() {
  const sent = new Map<number, { dueMs: number; done: (() => void) | undefined }>();
  let refs = 0;
  let counts = { acked: 0, refused: 0 };
  let latencies: number[] = [];
  let late: number[] = [];
  return {
    /** A message that was due at that moment. */
    send(client: Client, dueMs: number, done?: () => void): void {
      const ref = ++refs;
      const { socket, sessions } = client;
      const session = sessions[client.next++ % sessions.length]!;
      sent.set(ref, { dueMs, done });
      late.push(performance.now() - dueMs);
      socket.send(sendFrame(session, ref));
    },
    answered({ ref, type }: Answer): void {
      const asked = ref === undefined ? undefined : sent.get(ref);
      if (!asked) return;
      sent.delete(ref!);
      if (type === "error") counts.refused++;
      else {
        counts.acked++;
        latencies.push(performance.now() - asked.dueMs);
      }
      asked.done?.();
    },
    get waiting() {
      return sent.size;
    },
    /** Forgets what was until now. */
    begin(): void {
      counts = { acked: 0, refused: 0 };
      latencies = [];
      late = [];
    },
    found: () => ({ ...counts, latency: percentilesOf(latencies), late: percentilesOf(late) }),
  };
}

function percentilesOf(values: readonly number[]): Percentiles {
  if (values.length === 0) return { p50: 0, p95: 0, p99: 0 };
  const [p50, p95, p99] = [0.5, 0.95, 0.99].map((share) => percentile(values, share));
  return { p50: p50!, p95: p95!, p99: p99! };
}

async function alone(
  load: Load,
  client: Client,
  { warmUps, count, everyMs }: LoadWork & { type: "alone" },
  bench: Bench,
): Promise<Loaded> {
  const one = () => new Promise<void>((resolve) => load.send(client, performance.now(), resolve));
  for (let at = 0; at < warmUps; at++) await one();
  const end = begin(load, bench);
  for (let at = 0; at < count; at++) {
    await wait(everyMs);
    await one();
  }
  return end();
}

async function closed(
  load: Load,
  clients: readonly Client[],
  { inFlight, warmMs, runMs }: LoadWork & { type: "closed" },
  bench: Bench,
): Promise<Loaded> {
  const again = (client: Client) => load.send(client, performance.now(), () => again(client));
  for (const client of clients) for (let at = 0; at < inFlight; at++) again(client);
  await wait(warmMs);
  const end = begin(load, bench);
  await wait(runMs);
  return end();
}

/** Latencies count from the moment at which a message was due, so a wait that delays others counts for them too. */
async function open(
  load: Load,
  clients: readonly Client[],
  { perSecond, warmMs, runMs }: LoadWork & { type: "open" },
  bench: Bench,
): Promise<Loaded> {
  const startedMs = performance.now();
  let next = 0;
  const until = async (endMs: number) => {
    while (performance.now() < endMs) {
      const nowMs = performance.now();
      for (;;) {
        const dueMs = startedMs + (next * 1_000) / perSecond;
        if (dueMs > nowMs) break;
        load.send(clients[next++ % clients.length]!, dueMs);
      }
      await wait(tickMs);
    }
  };
  await until(startedMs + warmMs);
  const end = begin(load, bench);
  await until(startedMs + warmMs + runMs);
  const giveUpMs = performance.now() + answerLimitMs;
  while (load.waiting > 0 && performance.now() < giveUpMs) await wait(tickMs);
  return end({ lost: load.waiting });
}

/** What comes before isn't counted. */
function begin(load: Load, bench: Bench) {
  load.begin();
  const used = countUsage();
  bench.tell("begin");
  return ({ lost = 0 } = {}): Loaded => {
    const { cpuMs, wallMs } = used();
    const loaded = { ...load.found(), lost, wallMs, cpuMs };
    bench.tell("end");
    return loaded;
  };
}
