import type { Clock } from "../../base/clock.ts";
import { messageOf } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import type { Database, Row } from "../../store/database.ts";
import type { AgentFacts } from "../conversation/command.ts";
import { activeSecrets, restoreHeaders } from "./secrets.ts";
import { fromSettings, secretsOf, storedSettingsOf } from "./stored-agents.ts";
import { type AgentSpec, factsOfSpec } from "./agent.ts";
import { readAgents, storedByNames } from "./sql.ts";

/** The agents that a pod can run: its own, and those that are stored. */
export type AgentRegistry = {
  /**
   * What runs the agent, from this pod's code or from the store; undefined where there is none. It rejects
   * where what is stored can't be used.
   */
  spec(tenant: string, name: string): Promise<AgentSpec | undefined>;
  /**
   * What was known of it last. What isn't known well any more is read again meanwhile, so that whoever
   * asks often has it fresh; whoever must be sure asks `prime` before.
   */
  facts(tenant: string, name: string): AgentFacts | undefined;
  /** Whether it is in this pod's code. Other pods may not have it then. */
  isInCode(name: string): boolean;
  /** Learns all that isn't known, or isn't known well any more. */
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
  /** Why what is stored can't be used. */
  readonly error: unknown;
  readonly readAtMs: number;
};

const freshMs = 5_000;
// One that somebody makes should be there soon.
const missingMs = 1_000;
const maxKnown = 10_000;

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
    // The one that was put longest ago goes first.
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

  /** Those that somebody reads already are waited for, not read again. */
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

  /** Where the store is away, what was known last has to do: nobody can have changed it. */
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

function keyOf(tenant: string, name: string): string {
  return JSON.stringify([tenant, name]);
}

type ShadowedParts = {
  database: Database;
  log: Logger;
  code: ReadonlyMap<string, AgentSpec>;
};

/**
 * Says in the log which stored agents aren't used, because this pod has one of that name in code. They
 * can only have been made while no pod had it, so nobody was told then.
 */
export async function warnOfShadowed({ database, log, code }: ShadowedParts): Promise<void> {
  if (code.size === 0) return;
  try {
    for (const { tenant, name } of await database.read(
      storedByNames([...code.keys()], maxWarnings),
    ))
      log.warn({ agent: name, tenant }, "a stored agent isn't used: code has one of that name");
  } catch (error) {
    log.debug({ error: messageOf(error) }, "stored agents weren't looked at");
  }
}

/** More would only fill the log: who has one of each tenant's sees what is meant. */
const maxWarnings = 20;
