import { FlotillaError } from "../../base/errors.ts";
import type { Row } from "../database.ts";
import type { Query } from "../sql.ts";
import { sqlState } from "./errors.ts";

/**
 * What a server is, by what it says of itself. Services that run Postgres, and extensions such as Citus,
 * are `postgres`. `other` is one that no pattern knows, and that is tried out.
 */
export type Engine =
  | { readonly kind: "postgres"; readonly name: string; readonly major: number }
  | { readonly kind: "resembling"; readonly name: string; readonly resembling: Resembling }
  | { readonly kind: "other"; readonly name: string };

type Resembling = {
  readonly lacks: string;
  /** Whether `unproven` opens it by the reduced dialect. */
  readonly isProvable: boolean;
};

type Said = { readonly version: string; readonly hasDsql?: boolean };
type Ask = (text: string) => Promise<Row[]>;

/** Versions before it get no more fixes from the Postgres project. */
export const oldestPostgres = 15;

const page = "docs/stores.md";

// `PostgreSQL 17.2 (Debian 17.2-1.pgdg120+1) on x86_64-pc-linux-gnu, compiled by …`
const postgresVersion = /^PostgreSQL ((\d+)(?:\.\d+)*(?:devel|alpha\d+|beta\d+|rc\d+)?)(?: |,|$)/;

const others: readonly (Resembling & { readonly says: RegExp; readonly name: string })[] = [
  {
    name: "CockroachDB",
    says: /^CockroachDB [\w ]*?v?([\d.]+)/,
    lacks: "row addresses (ctid), notifications and advisory locks",
    isProvable: true,
  },
  {
    name: "YugabyteDB",
    says: /^PostgreSQL [\d.]+-YB-([\w.]+)/,
    lacks: "row addresses (ctid), notifications and, in most versions, advisory locks",
    isProvable: true,
  },
  {
    name: "Amazon Redshift",
    says: /\bRedshift ([\d.]+)/,
    lacks: "keys that are enforced, indexes, locks on rows and notifications",
    isProvable: false,
  },
];

const dsql: Resembling = {
  lacks:
    "several schema changes in one transaction, locks on rows that a query finds, transactions of more than 3,000 rows, and notifications",
  isProvable: false,
};

/** Asks a server what it is. Every engine that is known here answers the second. */
export const engineQuery = `version() as version, to_regclass('sys.iam_pg_role_mappings') is not null as has_dsql`;
export const versionQuery = "select version() as version";

/** Fails with `isOtherEngine` on a server that isn't the one that was looked at. */
export function sameEngineQuery(version: string): Query {
  return { text: "select 1 / (version() = $1)::integer as same", values: [version] };
}

export function isOtherEngine(error: unknown): boolean {
  return sqlState(error) === "22012";
}

export function engineOf({ version, hasDsql = false }: Said): Engine {
  if (hasDsql) return { kind: "resembling", name: "Amazon Aurora DSQL", resembling: dsql };
  for (const { says, name, ...resembling } of others) {
    const found = says.exec(version);
    if (found) return { kind: "resembling", name: `${name} ${found[1]}`, resembling };
  }
  const [, number, major] = postgresVersion.exec(version) ?? [];
  if (number !== undefined) {
    return { kind: "postgres", name: `Postgres ${number}`, major: Number(major) };
  }
  return { kind: "other", name: version.slice(0, maxNameChars) };
}

const maxNameChars = 60;

/** Why a server can't be used, or undefined. `lacks` is what a trial of one that isn't known has found. */
export function refusalOf(
  engine: Engine,
  { unproven, lacks = [] }: { unproven: boolean; lacks?: readonly string[] },
): FlotillaError | undefined {
  const refused = (why: string) =>
    new FlotillaError("unsupported", `the database is ${engine.name}, ${why} (${page})`, {
      details: { engine: engine.name },
    });
  switch (engine.kind) {
    case "postgres":
      return engine.major >= oldestPostgres
        ? undefined
        : refused(`and ${oldestPostgres} is the oldest version that is supported: upgrade it`);
    case "resembling": {
      const { lacks: missing, isProvable } = engine.resembling;
      if (!isProvable) return refused(`which resembles Postgres but lacks ${missing}`);
      if (unproven) return undefined;
      return refused(
        `which resembles Postgres but lacks ${missing}: \`unproven=1\` in the URL opens it by statements that need none of that, which no run has proven there`,
      );
    }
    case "other":
      if (unproven || lacks.length === 0) return undefined;
      return refused(`which resembles Postgres but lacks ${lacks.join(", ")}`);
  }
}

const trialTable = "flotilla_trial";
const held = `insert into ${trialTable} (id, held) values`;

/** What every claim, enqueue and lease relies on. */
const trials: readonly {
  what: string;
  texts: readonly string[];
  isRight?: (rows: Row[]) => boolean;
}[] = [
  {
    what: "row addresses (ctid)",
    texts: [
      `select id from ${trialTable} where ctid = any(array(select ctid from ${trialTable} where id = 1))`,
    ],
    isRight: (rows) => rows.length === 1,
  },
  {
    what: "locks on rows that skip locked ones",
    texts: [`select id from ${trialTable} where id = 1 for update skip locked`],
    isRight: (rows) => rows.length === 1,
  },
  {
    what: "partial unique indexes with `on conflict do nothing`",
    texts: [
      `create unique index ${trialTable}_held on ${trialTable} (held) where held > 0`,
      `${held} (2, 1) on conflict (held) where held > 0 do nothing`,
      `select id from ${trialTable}`,
    ],
    isRight: (rows) => rows.length === 1,
  },
];

/** Tries a server that isn't known, in transactions that are rolled back. Returns what it lacks. */
export async function tryEngine(ask: Ask): Promise<string[]> {
  const lacks: string[] = [];
  for (const { what, texts, isRight = () => true } of trials) {
    await ask("begin");
    try {
      await ask(`create temporary table ${trialTable} (id integer primary key, held integer)`);
      await ask(`${held} (1, 1)`);
      let rows: Row[] = [];
      for (const text of texts) rows = await ask(text);
      if (!isRight(rows)) lacks.push(what);
    } catch (error) {
      if (!isMissing(error)) throw error;
      lacks.push(what);
    } finally {
      await ask("rollback");
    }
  }
  return lacks;
}

/** Syntax, functions, columns or features that the server doesn't know; but not rights that a role lacks. */
export function isMissing(error: unknown): boolean {
  const cause = error instanceof FlotillaError ? error.cause : error;
  const state = sqlState(cause) ?? "";
  return (
    state !== "42501" && (state.startsWith("42") || state.startsWith("0A") || state === "3F000")
  );
}
