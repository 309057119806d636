import { availableParallelism, cpus } from "node:os";
import process from "node:process";
import { type Build, buildsOf } from "../beside.ts";
import { type Role, startRole } from "../roles.ts";
import type { BenchOptions } from "../run.ts";
import { type Place, placeOn, sqlitePlace } from "../servers/place.ts";
import { startBenchPostgres } from "../servers/postgres.ts";
import type { About } from "../side-by-side/open.ts";
import { type Look, lookAt, tidy } from "./looking.ts";
import type { ServerParams, Serving } from "./server.ts";

/** Where servers of this run keep their data, and how they are started. */
export type Site = {
  readonly options: BenchOptions;
  readonly rounds: number;
  readonly place: Place;
  readonly about: About;
  /** Ours, the other checkout's if there is one, and else the bare server. */
  readonly entrants: readonly Entrant[];
  /** Ours, and the other checkout's if there is one. */
  readonly builds: readonly Build[];
  serve(
    entrant: Entrant,
    store: string,
    params?: Omit<ServerParams, "store">,
  ): Promise<ServingSessions>;
  /** A server with sessions, or for `limit` the bare one. */
  open(entrant: Entrant, store: string): Promise<Running>;
  [Symbol.asyncDispose](): Promise<void>;
};

export type Entrant = {
  readonly key: Build["key"] | "limit";
  readonly checkout?: string | undefined;
};

/** A server in a process of its own. */
export type Running = {
  /** Absent where it has no sessions. */
  readonly httpUrl?: string;
  readonly socketUrl: string;
  readonly podId: string;
  look(): Promise<Look>;
  /** Throws away what it no longer needs, as far as that can be asked for. */
  tidy(): Promise<void>;
  stop(): Promise<void>;
  /** Where its clients come from, if not from this checkout. */
  readonly checkout: string | undefined;
};

type ServingSessions = Running & { readonly httpUrl: string };

export async function openSite(options: BenchOptions, rounds: number): Promise<Site> {
  const { store, folder, profile, progress, beside } = options;
  const place =
    store === "postgres"
      ? placeOn(await startBenchPostgres({ counting: profile !== undefined }))
      : sqlitePlace(folder);
  progress(`opened ${place.about}`);
  const builds = buildsOf(options);
  const serve: Site["serve"] = async ({ checkout }, url, params = {}) => {
    const role = startRole(
      new URL("./server.ts", import.meta.url),
      { logs: options.logs, ...params, store: url } satisfies ServerParams,
      { profile, checkout },
    );
    const { url: httpUrl, podId }: Serving = await role.next("ready");
    return {
      ...running(role, httpUrl, podId),
      httpUrl,
      socketUrl: `${wsOf(httpUrl)}/v1/socket?user=ada`,
      checkout,
    };
  };
  /** The bare `ws` server. */
  const echo = async (): Promise<Running> => {
    const role = startRole(new URL("./echo.ts", import.meta.url), null);
    const { url }: Serving = await role.next("ready");
    return running(role, url, "");
  };
  return {
    options,
    rounds,
    place,
    builds,
    entrants: beside === undefined ? [...builds, { key: "limit" }] : builds,
    serve,
    open: (entrant, url) => (entrant.key === "limit" ? echo() : serve(entrant, url)),
    about: {
      machine: `${availableParallelism()} ${process.arch} cores (${cpus()[0]?.model ?? "unknown"}), Node ${process.version}`,
      servers: { [store]: place.about },
      systems: {
        flotilla: "one process with pod and server, as `flotilla serve` has it",
        ...(beside === undefined
          ? {
              limit: "bare ws: sends back the same frames, or to all clients, and stores nothing",
              limit_journal: "the transactions of records by themselves, 100 messages each",
            }
          : { beside: "the same, of the other checkout" }),
      },
    },
    [Symbol.asyncDispose]: () => place.stop(),
  };
}

function running(role: Role, url: string, podId: string): Running {
  return {
    socketUrl: wsOf(url),
    podId,
    checkout: undefined,
    look: () => lookAt(role),
    tidy: () => tidy(role),
    async stop() {
      role.send("stop");
      await role.gone;
    },
  };
}

function wsOf(url: string): string {
  return url.replace(/^http/, "ws");
}

/** What clients need to know of a server. */
export function addressOf({ socketUrl, httpUrl }: Running) {
  return { socketUrl, ...(httpUrl !== undefined && { httpUrl }) };
}

/** What the servers use between two moments that the clients' process tells. */
export async function during<Result>(
  role: Role,
  servers: readonly Pick<Running, "look">[],
  place?: Pick<Place, "cpuMs">,
): Promise<{ result: Result; serverMs: number; storeMs: number | undefined }> {
  const ended = role.next("end");
  const result = role.result as Promise<Result>;
  // If the process ends before, whoever waits for its beginning says so.
  ended.catch(() => {});
  await role.next("begin");
  const looks = () => Promise.all(servers.map((each) => each.look()));
  const [before, storeBefore] = [await looks(), place?.cpuMs()];
  await ended;
  const [after, storeAfter] = [await looks(), place?.cpuMs()];
  const serverMs = after.reduce((sum, { cpuMs }, at) => sum + cpuMs - before[at]!.cpuMs, 0);
  const storeMs =
    storeBefore === undefined || storeAfter === undefined ? undefined : storeAfter - storeBefore;
  return { result: await result, serverMs, storeMs };
}
