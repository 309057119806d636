import { dirname, isAbsolute } from "node:path";
import { FlotillaError } from "../../base/errors.ts";
import { checkNats, type NatsConfig } from "../../bus/nats/config.ts";
import type { PodSettings } from "../../runtime/config.ts";
import { locateStore, type Store } from "../../store/open.ts";
import { usualLogBytes } from "../../sessions/log/jetstream/streams.ts";

/** What files of a deployment say, from the config and from flags. It holds no secret. */
export type DeployPlan = {
  readonly replicas: number;
  /** Where the server listens, and where probes and metrics are asked for. */
  readonly port: number;
  readonly adminPort: number;
  readonly scheme: "http" | "https";
  /** How long a pod may take to stop before it is killed. */
  readonly stopSeconds: number;
  readonly store: StorePlan;
  /** Whether the config says how callers are known. Else they need keys from the environment. */
  readonly knowsCallers: boolean;
  /** NATS servers that are deployed with the pods; undefined: there are none, or the config has others. */
  readonly nats: NatsPlan | undefined;
  /** Files that the config names by their full paths, such as certificates. */
  readonly files: readonly string[];
};

export type StorePlan =
  | { readonly kind: "sqlite"; readonly path: string }
  | {
      readonly kind: "postgres";
      readonly user: string;
      readonly database: string;
      /** Undefined: the default. */
      readonly schema: string | undefined;
    };

export type NatsPlan = {
  readonly namespace: string;
  readonly use: "bus" | "all";
  /** What streams of all logs may take on each server, in GiB. */
  readonly storeGib: number;
};

/** `own`: with the pods. `config`: those that the config names. `none`: pods talk through Postgres. */
export type NatsChoice = "own" | "config" | "none";

/** A file by its name, in the order in which files are used. */
export type DeployFiles = Readonly<Record<string, string>>;

/** Where the processes of a deployment keep their own files, whatever runs them. */
export const dataFolder = "/var/lib/flotilla";
/** The user of the NATS servers that are deployed with the pods, and its account. */
export const natsUser = { account: "FLOTILLA", user: "flotilla" } as const;

const defaultPort = 8_080;
const defaultAdminPort = 9_090;
const defaultName = "flotilla";
const gib = 1_024 ** 3;
const leastStoreGib = 4;
/** A log that servers have lost messages of gets a second stream, and the first one stays. */
const livesOfLog = 2;
const bracketed = /^\[|\]$/g;

/** Decides what the files say. Throws where the config and the flags don't go together. */
export function planDeploy(
  settings: PodSettings,
  { replicas, choice }: { replicas: number; choice: NatsChoice },
): DeployPlan {
  const { server = {}, shutdownMs, graceMs, nats } = settings;
  const { apiKeys = [], tokens, login, keys, tls } = server;
  return {
    replicas,
    port: server.port || defaultPort,
    adminPort: server.adminPort || defaultAdminPort,
    scheme: tls ? "https" : "http",
    // What is begun may end, then it is told to, and then its outcome is stored.
    stopSeconds: Math.ceil((shutdownMs + 2 * graceMs) / 1_000),
    store: storeOf(settings.store),
    knowsCallers: apiKeys.length > 0 || Boolean(tokens ?? login ?? keys),
    nats: choice === "own" ? ownNats(nats, settings.sessions) : undefined,
    files: filesOf(settings, choice).filter(isAbsolute),
  };
}

/** What is usual where no flag says it: those of the config, if it has some that need credentials or TLS. */
export function usualNats({ nats }: PodSettings, otherwise: NatsChoice): NatsChoice {
  if (nats === undefined) return otherwise;
  const { credentials, tls } = checkNats(nats);
  return otherwise === "own" && !credentials && !tls ? "own" : "config";
}

function ownNats(config: NatsConfig | undefined, sessions: PodSettings["sessions"]): NatsPlan {
  const known = config && checkNats(config);
  if (known?.credentials || known?.tls) {
    const which = known.credentials ? "nats.credentials" : "nats.tls";
    throw new FlotillaError(
      "invalid_option",
      `${which} of the config is for servers that are there: use --nats config, or take it out of the config`,
    );
  }
  if (known && known.durability !== "flushed") {
    throw new FlotillaError(
      "invalid_option",
      `nats.durability of the config is ${JSON.stringify(known.durability)}, and these servers flush before they acknowledge: take it out of the config, or use --nats config`,
    );
  }
  const logs = sessions === false ? 0 : sessions.logs;
  return {
    namespace: known?.namespace ?? defaultName,
    use: known?.use ?? "all",
    storeGib: Math.max(leastStoreGib, Math.ceil((logs * livesOfLog * usualLogBytes) / gib)),
  };
}

function storeOf(store: Store): StorePlan {
  const location = locateStore(store);
  if (location.kind === "sqlite") return location;
  const { url = "", schema } = location.store;
  const parsed = URL.parse(url);
  const part = (text = "") => decodeURIComponent(text).replaceAll(bracketed, "") || defaultName;
  return {
    kind: "postgres",
    user: part(parsed?.username),
    database: part(parsed?.pathname.slice(1)),
    schema: schema === defaultName ? undefined : schema,
  };
}

function filesOf({ server, nats }: PodSettings, choice: NatsChoice): string[] {
  const { credentials, tls = {} } = (choice === "config" && nats) || {};
  const { caFile, certFile, keyFile } = tls;
  const file = credentials && "file" in credentials ? credentials.file : undefined;
  const all = [file, caFile, certFile, keyFile, server?.tls?.key, server?.tls?.cert];
  return [...new Set(all.filter((each) => each !== undefined))];
}

/** The folders of files, each with what is in it. */
export function byFolder(files: readonly string[]): Map<string, string[]> {
  return Map.groupBy(files, (file) => dirname(file));
}

/** What `FLOTILLA_NATS` says of servers that are deployed with the pods. */
export function natsVariable(
  { namespace, use }: NatsPlan,
  hosts: readonly string[],
  password: string,
): string {
  const servers = hosts.map((host) => `nats://${natsUser.user}:${password}@${host}:4222`);
  const monitors = hosts.map((host) => `monitor=http://${host}:8222`);
  const about = [`use=${use}`, `namespace=${namespace}`, ...(use === "all" ? monitors : [])];
  return `${servers.join(",")}?${about.join("&")}`;
}
