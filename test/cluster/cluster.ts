import { readFileSync, readdirSync } from "node:fs";
import process from "node:process";
import { hasCode } from "../../src/base/errors.ts";
import { systemRandom } from "../../src/base/random.ts";
import { logOf } from "../../src/sessions/log/placement.ts";
import { openFleet } from "../crash/fleet.ts";
import { monotonicMs } from "../crash/ledger.ts";
import { type FakeTime, fakeTime } from "../crash/postgres/fake-time.ts";
import { mountTinyDisk, type TinyDisk } from "../crash/postgres/tiny-disk.ts";
import {
  type ServerProcess,
  type SessionFleet,
  sessionFleetOn,
  users,
} from "../crash/sessions/fleet.ts";
import { postgresStore } from "../crash/stores.ts";
import { pauseFor, until } from "../crash/until.ts";
import { type NatsCluster, startNatsCluster } from "../nats/server.ts";
import { type PostgresServer, startPostgres } from "../postgres/server.ts";
import type { Archives, Look, Replica, SeenHead } from "./evidence.ts";
import { startJanitor } from "./janitor.ts";
import { openLogReader } from "./log-reader.ts";
import type { Network } from "./network.ts";
import { openNetwork } from "./open-network.ts";
import { rebuildArchive } from "./rebuilt-archive.ts";

/**
 * What pods use NATS for: to reach each other alone, for the logs of sessions as well, or for one and then for
 * both, as logs move.
 */
export type ClusterMode = "bus" | "all" | "move";

/** Three NATS servers, three pods and a Postgres server, each on a node of a network of its own. */
export type Cluster = {
  readonly mode: ClusterMode;
  readonly network: Network;
  readonly nats: NatsCluster;
  /** What each NATS server keeps its streams on. Empty where only root could make one. */
  readonly disks: readonly TinyDisk[];
  readonly postgres: PostgresServer;
  readonly clocks: { readonly pods: readonly FakeTime[]; readonly postgres: FakeTime };
  readonly fleet: SessionFleet;
  /** The pod at each place. One that was ended stays there until another is started. */
  readonly pods: ServerProcess[];
  /** The NATS servers, as a process at a place reaches them. */
  readonly urlsAt: readonly (readonly string[])[];
  /** Starts a pod at a place, as often as it takes. */
  startPod(at: number): Promise<void>;
  /** Starts a NATS server again, as often as it takes. */
  startServer(nth: number): Promise<void>;
  /** Makes a session, by any pod that answers. */
  open(session: string, agent: string | null): Promise<void>;
  /** Asks a pod for the tail of a session. Undefined if it doesn't say. */
  look(at: number, asked: Pick<Look, "reader" | "session">): Promise<Look | undefined>;
  /** The heads of all logs. */
  heads(): Promise<SeenHead[]>;
  /** The logs of pods, as each NATS server has them; none where they aren't there. */
  replicas(): Promise<Replica[]>;
  /** The archive of those logs, and what it should be; undefined where they aren't there from the beginning. */
  archives(): Promise<Archives | undefined>;
  close(options?: { keep: boolean }): Promise<void>;
};

/** The most answers of the agent behind a URL that pods may want at once, all together. */
export const callsMax = 3;
export const places = [0, 1, 2] as const;
export const serverNode = (nth: number) => `n${nth + 1}`;
export const podNode = (at: number) => `p${at + 1}`;
export const postgresNode = "db";

const key = "a-key-of-the-test-alone";
/** What subjects and streams of pods begin with. */
export const namespace = "storm";
const diskMegabytes = 128;
const startMs = 90_000;
const lookMs = 5_000;
/** A disk that others use too may stand still for a minute. */
const archiveMs = 90_000;

export async function openCluster({ mode }: { mode: ClusterMode }): Promise<Cluster> {
  await using opening = new AsyncDisposableStack();
  const janitor = startJanitor();
  opening.defer(() => janitor.close());
  const isRoot = process.getuid?.() === 0;
  const disks = isRoot ? places.map(() => mountTinyDisk({ megabytes: diskMegabytes })) : [];
  for (const disk of disks) {
    janitor.inTheEnd(`umount --lazy ${disk.folder}; rmdir ${disk.folder}`);
    opening.defer(disk.remove);
  }
  const nodes = [...places.map(serverNode), ...places.map(podNode), postgresNode];
  const network = await openNetwork({ nodes, janitor, random: systemRandom });
  opening.defer(() => network.close());
  const isSplit = network.kind === "namespaces";

  const nats = await startNatsCluster(
    {},
    {
      options: (nth) => ({
        address: network.addressOf(serverNode(nth)),
        under: network.under(serverNode(nth)),
        ...(disks[nth] && { within: disks[nth].folder }),
      }),
      ...(!isSplit && {
        route: (from, to, url) => network.way(serverNode(from), serverNode(to), url),
      }),
    },
  );
  opening.defer(() => nats.stop());

  const clocks = { pods: places.map(() => fakeTime(0)), postgres: fakeTime(0) };
  for (const clock of [...clocks.pods, clocks.postgres]) opening.defer(clock.remove);
  const postgres = await startPostgres({
    address: network.addressOf(postgresNode),
    ...(isSplit
      ? { under: (user) => [...network.under(postgresNode, user), ...livingBy(clocks.postgres)] }
      : { env: clocks.postgres.env }),
    settings: { max_connections: 120 },
  });
  opening.defer(() => postgres.stop());
  const plain = await openFleet(() => postgresStore(postgres.url));
  const sessions = sessionFleetOn(plain, { key });
  const stores = await Promise.all(
    places.map((at) => network.way(podNode(at), postgresNode, plain.store)),
  );
  const urlsAt = await Promise.all(
    places.map((at) =>
      Promise.all(
        nats.servers.map(({ url }, nth) => network.way(podNode(at), serverNode(nth), url)),
      ),
    ),
  );
  const monitor = nats.servers.map(({ monitorUrl }) => monitorUrl);

  const startPod = async (at: number): Promise<ServerProcess> => {
    const node = podNode(at);
    return sessions.startServer({
      host: network.addressOf(node),
      apiKeys: [key],
      store: stores[at]!,
      under: [...network.under(node), ...livingBy(clocks.pods[at]!)],
      remoteMax: callsMax,
      config: {
        nats: {
          servers: urlsAt[at],
          namespace,
          use: mode === "all" ? "all" : "bus",
          ...(mode !== "bus" && { monitor }),
        },
      },
    });
  };
  const reader = mode === "bus" ? undefined : await openLogReader(nats, namespace);
  if (reader) opening.defer(() => reader.close());
  /** What tells of the logs where they are. Undefined: Postgres does. */
  const readerNow = async () => {
    if (mode !== "move") return reader;
    const [row] = await sessions.sql("select place from flotilla.log_place");
    return row!["place"] === "nats" ? reader : undefined;
  };
  const pods: ServerProcess[] = [];
  const ask = async (at: number, path: string, init: RequestInit = {}) =>
    fetch(`${pods[at]!.url}/v1/${path}`, {
      ...init,
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
      signal: AbortSignal.timeout(lookMs),
    });

  /** Asks again while a stream has no leader: a log without an answer isn't one without an owner. */
  const owners =
    reader &&
    (async () => {
      const ownersNow = async () => {
        const streams = await readerNow();
        return streams ? (await streams.heads()).map(({ owner }) => owner) : sessions.owners();
      };
      return until("all heads are told", () => ownersNow().catch(() => undefined));
    });
  const fleet: SessionFleet = {
    ...sessions,
    ...(owners && {
      owners,
      ownerOf: async (session) => {
        const all = await owners();
        return all[logOf(session, all.length)] ?? null;
      },
    }),
  };

  const stack = opening.move();
  return {
    mode,
    network,
    nats,
    disks,
    postgres,
    clocks,
    fleet,
    pods,
    urlsAt,
    async startPod(at) {
      pods[at] = await againUntilStarted(() => startPod(at));
    },
    startServer: (nth) => againUntilStarted(() => nats.servers[nth]!.start()),
    async open(session, agent) {
      const agents = agent === null ? {} : { agents: [agent] };
      const body = JSON.stringify({ sessionId: session, ...agents, users: [...users] });
      let at = 0;
      await until(`the session ${session} is made`, async () => {
        const asked = ask(at++ % pods.length, "sessions", { method: "POST", body });
        // A pod that is gone or cut off says nothing, and another is asked.
        const answer = await asked.catch(() => undefined);
        if (!answer) return false;
        if (answer.status === 201) return true;
        const said = await answer.text();
        if (answer.status < 500 && answer.status !== 429) throw new Error(said);
        return false;
      });
    },
    async look(at, { reader, session }) {
      const askedMs = monotonicMs();
      try {
        const answer = await ask(at, `sessions/${session}/messages?limit=1`);
        if (!answer.ok) return undefined;
        const { lastSeq } = (await answer.json()) as { lastSeq: number };
        const pod = pods[at]!.podId;
        return { reader, session, pod, askedMs, atMs: monotonicMs(), lastSeq };
      } catch {
        return undefined;
      }
    },
    async heads() {
      const streams = await readerNow();
      // A stream that a log has just gone to says nothing of where that stands.
      if (streams) return (await streams.heads()).filter(({ term }) => mode === "all" || term > 0);
      const rows = await sessions.sql(
        "select log_id, incarnation, term, log_offset from flotilla_session_log order by log_id",
      );
      return rows.map((row) => ({
        log: row["log_id"],
        incarnation: row["incarnation"],
        term: row["term"],
        offset: row["log_offset"],
      }));
    },
    replicas: async () => (await (await readerNow())?.replicas()) ?? [],
    async archives() {
      if (mode !== "all") return undefined;
      const from = { nats, namespace, store: plain.store, server: postgres.url };
      const endMs = monotonicMs() + archiveMs;
      for (;;) {
        const isOver = monotonicMs() > endMs;
        // A stream may be without a leader for a moment.
        const rebuilt = await rebuildArchive(from).catch((error: unknown) => {
          if (isOver || !hasCode(error, "store_unavailable")) throw error;
        });
        // The archive is behind its logs by less than that, unless it never gets there.
        if (rebuilt && (isOver || rebuilt.behind.length === 0)) return rebuilt;
        await pauseFor(500);
      }
    },
    async close({ keep } = { keep: false }) {
      sessions.hangUp();
      // Where the server is gone, its database goes with its folder.
      await sessions.close({ keep }).catch(() => {});
      await stack.disposeAsync();
    },
  };
}

/**
 * Has a process live by a clock, and none before it that starts it: that one would be root's, and the server
 * couldn't open what it leaves behind.
 */
function livingBy({ env }: FakeTime): string[] {
  return ["env", ...Object.entries(env).map(([name, value]) => `${name}=${value}`)];
}

/** Does what a supervisor does. */
async function againUntilStarted<Started>(start: () => Promise<Started>): Promise<Started> {
  const endMs = monotonicMs() + startMs;
  for (;;) {
    try {
      return await start();
    } catch (error) {
      if (monotonicMs() > endMs) throw error;
      await pauseFor(200);
    }
  }
}

/** Stops all processes of a Postgres server, or has them go on. */
export function signalPostgres({ pid }: PostgresServer, signal: "SIGSTOP" | "SIGCONT"): void {
  // It stops first, so that it starts no other meanwhile.
  process.kill(pid, signal);
  for (const each of childrenOf(pid)) {
    try {
      process.kill(each, signal);
    } catch {
      // It has ended since.
    }
  }
}

function childrenOf(parent: number): number[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .filter((name) => parentOf(name) === parent)
    .map(Number);
}

function parentOf(pid: string): number | undefined {
  try {
    // Its name may hold spaces and brackets; what follows it doesn't.
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    return Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[1]);
  } catch {
    return undefined;
  }
}
