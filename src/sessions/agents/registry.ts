import type { Clock } from "../../base/clock.ts";
import { messageOf } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import type { Database, Row } from "../../store/database.ts";
import type { AgentFacts } from "../conversation/command.ts";
import { activeSecrets, restoreHeaders } from "./secrets.ts";
import { fromSettings, secretsOf, storedSettingsOf } from "./stored-agents.ts";
import { factsOfSpec } from "./agent.ts";
import { countPlainSecrets, readAgents, storedByNames } from "./sql.ts";
import type { AgentSpec } from "./spec.ts";

/** The agents that a pod can run: those in its code, and stored ones. */
export type AgentRegistry = {
  /**
   * The agent from this pod's code or from the store; undefined if there is none. Rejects if the stored
   * settings are not valid.
   */
  spec(tenant: string, name: string): Promise<AgentSpec | undefined>;
  /**
   * The facts as last read. Stale facts are read again in the background, so that a frequent caller has
   * them fresh. A caller that must be sure awaits `prime` first.
   */
  facts(tenant: string, name: string): AgentFacts | undefined;
  /** True when it is in this pod's code. Other pods may not have it then. */
  isInCode(name: string): boolean;
  /** Reads all agents that are unknown or stale. */
  prime(tenant: string, names: readonly string[]): Promise<void>;
};

type AgentRegistryParts = {
  database: Database;
  clock: Clock;
  code: ReadonlyMap<string, AgentSpec>;
  /** Whether stored agents may be in private networks. Default false. */
  allowPrivate?: boolean;
};

type Known = {
  readonly spec: AgentSpec | undefined;
  /** Why the stored settings are not valid. */
  readonly error: unknown;
  readonly readAtMs: number;
};

const freshMs = 5_000;
// An agent that has just been created should be found soon.
const missingMs = 1_000;
const maxKnown = 10_000;
/** Bounds the log. A few tenants' names are enough to see the conflict. */
const maxWarnings = 20;

export function createAgentRegistry(parts: AgentRegistryParts): AgentRegistry {
  const { database, clock, code, allowPrivate = false } = parts;
  const stored = new Map<string, Known>();
  const reading = new Map<string, Promise<void>>();

  const isFresh = (known: Known | undefined): boolean => {
    if (!known) return false;
    const forMs = known.spec || known.error !== undefined ? freshMs : missingMs;
    return clock.monotonic() - known.readAtMs < forMs;
  };

  const learn = (tenant: string, name: string, known: Known): void => {
    const key = keyOf(tenant, name);
    // Keeps the map in order of reading, so that the oldest is dropped first.
    stored.delete(key);
    stored.set(key, known);
    if (stored.size > maxKnown) stored.delete(stored.keys().next().value!);
  };

  const readStored = async (tenant: string, names: readonly string[]): Promise<void> => {
    const readAtMs = clock.monotonic();
    const rows = await database.read(readAgents(tenant, names));
    const found = new Map(rows.map((row) => [row["name"] as string, row]));
    for (const name of names) learn(tenant, name, { ...made(found.get(name)), readAtMs });
  };

  const made = (row: Row | undefined): Omit<Known, "readAtMs"> => {
    if (!row) return { spec: undefined, error: undefined };
    try {
      const secrets = secretsOf(row);
      const settings = restoreHeaders(storedSettingsOf(row), secrets);
      const signing = activeSecrets(secrets, clock.now());
      return {
        spec: fromSettings(row["name"], settings, signing, { allowPrivate }),
        error: undefined,
      };
    } catch (error) {
      return { spec: undefined, error };
    }
  };

  /** Agents with a read in flight are awaited, not read again. */
  const readOnce = async (tenant: string, names: readonly string[]): Promise<void> => {
    const wanted = [...new Set(names)].filter((name) => !reading.has(keyOf(tenant, name)));
    const all = names.flatMap((name) => reading.get(keyOf(tenant, name)) ?? []);
    if (wanted.length > 0) {
      const keys = wanted.map((name) => keyOf(tenant, name));
      const read = readStored(tenant, wanted).finally(() => {
        for (const key of keys) reading.delete(key);
      });
      for (const key of keys) reading.set(key, read);
      all.push(read);
    }
    await Promise.all(all);
  };

  /**
   * While the store is unreachable, the last known settings serve: they cannot have been changed either.
   */
  const prime = async (tenant: string, names: readonly string[]): Promise<void> => {
    const stale = names.filter(
      (name) => !code.has(name) && !isFresh(stored.get(keyOf(tenant, name))),
    );
    if (stale.length === 0) return;
    try {
      await readOnce(tenant, stale);
    } catch (error) {
      if (!stale.every((name) => stored.get(keyOf(tenant, name))?.spec)) throw error;
    }
  };

  return {
    async spec(tenant, name) {
      const own = code.get(name);
      if (own) return own;
      await prime(tenant, [name]);
      const known = stored.get(keyOf(tenant, name));
      if (known?.error !== undefined) throw known.error;
      return known?.spec;
    },

    facts(tenant, name) {
      const own = code.get(name);
      if (own) return factsOfSpec(own);
      const known = stored.get(keyOf(tenant, name));
      if (known && !isFresh(known)) prime(tenant, [name]).catch(() => {});
      return known?.spec && factsOfSpec(known.spec);
    },

    isInCode: (name) => code.has(name),
    prime,
  };
}

type ShadowedParts = {
  database: Database;
  log: Logger;
  code: ReadonlyMap<string, AgentSpec>;
};

/**
 * Logs which stored agents are ignored because this pod defines one of that name in code. They were
 * created while no pod had the name, so their creator got no error.
 */
export async function warnOfShadowed({ database, log, code }: ShadowedParts): Promise<void> {
  if (code.size === 0) return;
  try {
    for (const { tenant, name } of await database.read(
      storedByNames([...code.keys()], maxWarnings),
    ))
      log.warn({ agent: name, tenant }, "stored agent ignored: code defines one of that name");
  } catch (error) {
    log.debug({ error: messageOf(error) }, "reading stored agents failed");
  }
}

/** How many stored agents have secrets that are in the store in plain text. */
export async function plainSecrets(database: Pick<Database, "read">): Promise<number> {
  const [row] = await database.read(countPlainSecrets());
  return Number(row!["agents"]);
}

/** Logs once that a copy of the store would reveal the secrets of its agents, for a pod without a codec. */
export async function warnOfPlainSecrets({
  database,
  log,
}: Pick<ShadowedParts, "log"> & { database: Pick<Database, "read"> }): Promise<void> {
  try {
    const agents = await plainSecrets(database);
    const advice = "configure `codec`, then set the agents' headers and secrets again";
    if (agents > 0) log.warn({ agents, advice }, "secrets of stored agents are in plain text");
  } catch (error) {
    log.debug({ error: messageOf(error) }, "reading stored agents failed");
  }
}

function keyOf(tenant: string, name: string): string {
  return JSON.stringify([tenant, name]);
}
