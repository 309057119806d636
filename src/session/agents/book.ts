import type { Clock } from "../../base/clock.ts";
import type { Database, Row } from "../../store/database.ts";
import type { AgentFacts } from "../command.ts";
import { agentsInCode } from "./in-code.ts";
import { signingNow, withValues } from "./kept-secrets.ts";
import { fromSettings } from "./settings.ts";
import { type AgentSpec, factsOf } from "./spec.ts";
import { readAgents } from "./stored-statements.ts";
import { secretsOf, settingsOf } from "./stored.ts";

/** The agents that a pod knows: its own, those of other pods, and those that are stored. */
export type AgentBook = {
  /**
   * What runs the agent, from this pod's code or from the store. Undefined where there is none, or where
   * only other pods have it in code. It rejects where what is stored can't be used.
   */
  spec(tenant: string, name: string): Promise<AgentSpec | undefined>;
  /** What was known of it last. Whoever needs it fresh asks `prime` before. */
  facts(tenant: string, name: string): AgentFacts | undefined;
  /** Learns all that isn't known, or isn't known well any more. */
  prime(tenant: string, names: readonly string[]): Promise<void>;
};

export type AgentBookParts = {
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
const knownMost = 10_000;

export function createAgentBook(parts: AgentBookParts): AgentBook {
  const { database, clock, code, allowPrivate = false } = parts;
  const stored = new Map<string, Known>();
  const reading = new Map<string, Promise<void>>();
  let elsewhere: { facts: ReadonlyMap<string, AgentFacts>; readAtMs: number } | undefined;
  let readingElsewhere: Promise<void> | undefined;

  const isFresh = (known: { readAtMs: number } | undefined) =>
    known !== undefined && clock.monotonic() - known.readAtMs < freshMs;

  const learn = (tenant: string, name: string, known: Known): void => {
    const key = keyOf(tenant, name);
    // The one that was put longest ago goes first.
    stored.delete(key);
    stored.set(key, known);
    if (stored.size > knownMost) stored.delete(stored.keys().next().value!);
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
      const settings = withValues(settingsOf(row), secrets);
      const signing = signingNow(secrets, clock.now());
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

  const readElsewhere = (): Promise<void> => {
    const readAtMs = clock.monotonic();
    readingElsewhere ??= agentsInCode(database)
      .then((facts) => {
        elsewhere = { facts, readAtMs };
      })
      .finally(() => {
        readingElsewhere = undefined;
      });
    return readingElsewhere;
  };

  /** Where the store is away, what was known last has to do: nobody can have changed it. */
  const prime = async (tenant: string, names: readonly string[]): Promise<void> => {
    const unknown = names.filter((name) => !code.has(name));
    if (unknown.length === 0) return;
    const stale = unknown.filter((name) => !isFresh(stored.get(keyOf(tenant, name))));
    try {
      await Promise.all([
        stale.length > 0 && readOnce(tenant, stale),
        !isFresh(elsewhere) && readElsewhere(),
      ]);
    } catch (error) {
      const isKnown = (name: string) =>
        stored.has(keyOf(tenant, name)) || elsewhere?.facts.has(name);
      if (!unknown.every(isKnown)) throw error;
    }
  };

  return {
    async spec(tenant, name) {
      const own = code.get(name);
      if (own) return own;
      await prime(tenant, [name]);
      // What some pods have in code is theirs to run.
      if (elsewhere?.facts.has(name)) return undefined;
      const known = stored.get(keyOf(tenant, name));
      if (known?.error !== undefined) throw known.error;
      return known?.spec;
    },

    facts(tenant, name) {
      const own = code.get(name);
      if (own) return factsOf(own);
      const known = elsewhere?.facts.get(name);
      if (known) return known;
      const spec = stored.get(keyOf(tenant, name))?.spec;
      return spec && factsOf(spec);
    },

    prime,
  };
}

function keyOf(tenant: string, name: string): string {
  return JSON.stringify([tenant, name]);
}
