import { FlotillaError } from "../../base/errors.ts";
import { checkChoice, checkOptions } from "../../base/options.ts";

/**
 * Servers of NATS that carry envelopes and notifications between pods, in place of Postgres, and keep the
 * logs of sessions if they are to.
 */
export type NatsConfig = {
  /** One or several of a cluster: `nats://host:4222`, `tls://host:4222` or `host:4222`. */
  servers: string | readonly string[];
  /** What the servers know this program by. Default: what a URL of `servers` holds, else nothing. */
  credentials?: NatsCredentials;
  /** Connects only with TLS. Without it TLS is used where servers offer it. */
  tls?: NatsTls;
  /**
   * Keeps deployments apart that share servers: subjects begin with `flotilla.<namespace>`. Lower-case
   * letters, digits and `_`, at most 32. Default `flotilla`.
   */
  namespace?: string;
  /**
   * What they are used for. `bus` (default): envelopes between pods, and notifications of work; and the logs
   * of sessions once `flotilla promote --to nats` has moved them there. `all`: they keep these logs from the
   * start, in streams of JetStream on three servers, and the database follows.
   */
  use?: "bus" | "all";
  /**
   * The monitoring addresses of all servers, such as `http://10.0.0.5:8222`. Where logs are on
   * them, a pod reads there whether servers flush before they acknowledge.
   */
  monitor?: string | readonly string[];
  /** What an acknowledged message has where logs are on them. Default `flushed`. */
  durability?: NatsDurability;
};

/**
 * `flushed`: two of three servers have it on disk. `replicas`: two of three servers have it, perhaps in
 * memory, so that a power failure of two can lose it. `single`: one server has it, for one's own machine.
 */
export type NatsDurability = "flushed" | "replicas" | "single";

export type NatsCredentials =
  /** A file of credentials, as `nsc` and `nats` write them. */
  | { readonly file: string }
  /** The seed of an nkey, which begins with `SU`. */
  | { readonly nkey: string }
  | { readonly token: string }
  | { readonly user: string; readonly password: string };

export type NatsTls = {
  /** The authority that servers' certificates are checked by. Default: those that Node trusts. */
  caFile?: string;
  /** A certificate of this program, where servers want one, and its key. */
  certFile?: string;
  keyFile?: string;
  /** TLS from the first byte, where servers are configured so. Default false. */
  handshakeFirst?: boolean;
};

/** A config that was checked, with its defaults. */
export type NatsSettings = {
  /** Hosts and ports, which may be logged. */
  readonly servers: readonly string[];
  readonly credentials: NatsCredentials | undefined;
  readonly tls: NatsTls | undefined;
  readonly namespace: string;
  readonly use: "bus" | "all";
  readonly monitors: readonly string[];
  readonly durability: NatsDurability;
};

const defaultPort = 4222;
const maxServers = 100;
const credentialKinds = [["file"], ["nkey"], ["token"], ["user", "password"]];

/** Checks a config of NATS, and fills in its defaults. Errors hold no secret. */
export function checkNats(config: NatsConfig): NatsSettings {
  checkOptions("nats", config, [
    "servers",
    "credentials",
    "tls",
    "namespace",
    "use",
    "monitor",
    "durability",
  ]);
  const { servers, credentials, tls, namespace = "flotilla", use = "bus" } = config;
  const { monitor = [], durability = "flushed" } = config;
  checkChoice("nats.use", use, ["bus", "all"]);
  checkChoice("nats.durability", durability, ["flushed", "replicas", "single"]);
  if (typeof namespace !== "string" || !/^[a-z0-9_]{1,32}$/.test(namespace)) {
    throw invalid("nats.namespace must be 1 to 32 lower-case letters, digits and `_`");
  }
  const given: readonly unknown[] = Array.isArray(servers) ? servers : [servers];
  if (given.length === 0 || given.length > maxServers) {
    throw invalid(`nats.servers must name 1 to ${maxServers} servers`);
  }
  const parsed = given.map(parseServer);
  const fromUrl = parsed.find((each) => each.credentials)?.credentials;
  if (fromUrl && credentials) {
    throw invalid("nats: credentials are in `servers` and in `credentials`: give them once");
  }
  if (credentials !== undefined) checkCredentials(credentials);
  if (tls !== undefined) checkTls(tls);
  return {
    servers: parsed.map(({ address }) => address),
    credentials: credentials ?? fromUrl,
    tls: tls ?? (parsed.some((each) => each.needsTls) ? {} : undefined),
    namespace,
    use,
    monitors: (Array.isArray(monitor) ? monitor : [monitor]).map(parseMonitor),
    durability,
  };
}

/** What pods have in common that hear each other and have their shares of throttles in the same place. */
export function natsName({ namespace, use }: Pick<NatsSettings, "namespace" | "use">): string {
  return use === "bus" ? namespace : `${namespace} for ${use}`;
}

const namedInText = ["namespace", "use", "durability"] as const;

/**
 * The config that a variable of the environment holds: servers, separated by commas, and after a `?` what
 * is said of all of them, as in `nats://n1,nats://n2,nats://n3?use=all&monitor=http://n1:8222`.
 */
export function natsConfigIn(text: string | undefined): NatsConfig | undefined {
  const [before = "", ...after] = (text ?? "").split("?");
  const servers = before.split(",").map((each) => each.trim());
  const named = servers.filter((each) => each !== "");
  if (named.length === 0) return undefined;
  const said = new URLSearchParams(after.join("?"));
  const known: readonly string[] = [...namedInText, "monitor"];
  const unknown = [...said.keys()].find((each) => !known.includes(each));
  if (unknown !== undefined) {
    throw invalid(
      `FLOTILLA_NATS: unknown option ${JSON.stringify(unknown.slice(0, 40))} after the servers: known are ${known.join(", ")}`,
    );
  }
  const monitors = said.getAll("monitor");
  return {
    servers: named,
    // Checked with the rest of the config.
    ...(Object.fromEntries(
      namedInText.flatMap((name) => {
        const value = said.get(name);
        return value === null ? [] : [[name, value]];
      }),
    ) as Partial<NatsConfig>),
    ...(monitors.length > 0 && { monitor: monitors }),
  };
}

type ParsedServer = {
  readonly address: string;
  readonly needsTls: boolean;
  readonly credentials: NatsCredentials | undefined;
};

function parseServer(server: unknown): ParsedServer {
  const what = "nats.servers must be URLs such as nats://host:4222";
  if (typeof server !== "string" || server === "") throw invalid(what);
  const url = URL.parse(server.includes("://") ? server : `nats://${server}`);
  // Its own text may hold a password.
  if (!url || url.hostname === "" || !/^\/?$/.test(url.pathname) || url.search || url.hash) {
    throw invalid(`${what}: one of them isn't`);
  }
  if (url.protocol !== "nats:" && url.protocol !== "tls:") {
    throw invalid(`${what}, not ${url.protocol}//`);
  }
  const { username, password, hostname, port } = url;
  return {
    address: `${hostname}:${port || defaultPort}`,
    needsTls: url.protocol === "tls:",
    credentials: credentialsIn(decodeURIComponent(username), decodeURIComponent(password)),
  };
}

function parseMonitor(address: unknown): string {
  const url = typeof address === "string" ? URL.parse(address) : null;
  const isHttp = url?.protocol === "http:" || url?.protocol === "https:";
  if (isHttp && url.username === "" && url.password === "") return url.href;
  throw invalid(
    "nats.monitor must be addresses such as http://host:8222, one of each server and without a password",
  );
}

function credentialsIn(user: string, password: string): NatsCredentials | undefined {
  if (user === "") return undefined;
  return password === "" ? { token: user } : { user, password };
}

function checkCredentials(credentials: NatsCredentials): void {
  const given = Object.entries(credentials ?? {});
  const names = given.map(([name]) => name).toSorted();
  const isKnown = credentialKinds.some((kind) => kind.toSorted().join() === names.join());
  if (!isKnown || given.some(([, value]) => typeof value !== "string" || value === "")) {
    throw invalid(
      "nats.credentials must be `{ file }`, `{ nkey }`, `{ token }` or `{ user, password }`, as text",
    );
  }
  if ("nkey" in credentials && !/^SU[A-Z2-7]{56}$/.test(credentials.nkey)) {
    throw invalid("nats.credentials.nkey must be the seed of a user, which begins with SU");
  }
}

function checkTls(tls: NatsTls): void {
  checkOptions("nats.tls", tls, ["caFile", "certFile", "keyFile", "handshakeFirst"]);
  const { handshakeFirst = false, ...files } = tls;
  if (typeof handshakeFirst !== "boolean")
    throw invalid("nats.tls.handshakeFirst must be true or false");
  for (const [name, path] of Object.entries(files)) {
    if (typeof path !== "string" || path === "") throw invalid(`nats.tls.${name} must be a path`);
  }
  if ((tls.certFile === undefined) !== (tls.keyFile === undefined))
    throw invalid("nats.tls needs both `certFile` and `keyFile`, or neither");
}

function invalid(message: string): FlotillaError {
  return new FlotillaError("invalid_option", message);
}
