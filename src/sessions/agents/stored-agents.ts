import { type ActAbout, type ActParts, beginAct, writeAct } from "../../audit/act.ts";
import { dayMs } from "../../base/durations.ts";
import { FlotillaError } from "../../base/errors.ts";
import { encodeJson } from "../../base/json.ts";
import { checkNumber, checkOptions } from "../../base/options.ts";
import { fitPage } from "../../base/page.ts";
import { livePods } from "../../pods/sql.ts";
import type { Database, Row } from "../../store/database.ts";
import { untilKnown } from "../../store/retry.ts";
import { hasMore } from "../../store/page.ts";
import type { AgentFacts } from "../conversation/command.ts";
import { agent, type UrlAgentOptions } from "./agent.ts";
import { checkAgentName, checkAgentOptions, checkUrlSource, optionNames } from "./options.ts";
import {
  type AgentSecrets,
  type AgentSettings,
  mergeSecrets,
  type StoredSecrets,
  noSecrets,
  type SecretView,
  secretViews,
  type RedactedSettings,
  redactHeaders,
  restoreHeaders,
} from "./secrets.ts";
import { createAgent, listAgents, readAgents, removeAgent, replaceAgent } from "./sql.ts";
import type { AgentSpec } from "./spec.ts";

/** An agent as the API shows it. It holds no secrets. */
export type AgentView =
  | {
      readonly name: string;
      /** Pods define it in code, so it is changed there. */
      readonly source: "code";
      readonly facts: AgentFacts;
      /** An agent of that name is stored too, and ignored while pods define one in code. */
      readonly shadows?: true;
    }
  | {
      readonly name: string;
      readonly source: "stored";
      readonly settings: RedactedSettings;
      readonly signing: readonly SecretView[];
      readonly compactionSigning: readonly SecretView[];
      readonly revision: number;
      readonly createdAtMs: number;
      readonly lastUpdateMs: number;
    };

export type AgentPage = { readonly agents: readonly AgentView[]; readonly next: string | null };

/** What a stored agent should be. */
export type AgentGiven = {
  /** A header with the value null keeps its stored value. */
  settings: unknown;
  /** Signs the agent's requests: `whsec_…`. A secret that it replaces goes on signing for a while. */
  secret?: string | null;
  /** The same for the compactor. */
  compactionSecret?: string | null;
  /** How long a replaced secret still signs. Default: a day. 0 ends it at once. */
  keepOldSecretMs?: number;
};

export type AgentReplaced = AgentGiven & {
  /** Replaces the agent only if this is its revision. */
  ifRevision?: number;
};

/** Agents that are created and changed while pods run. Each tenant has its own. */
export type StoredAgents = {
  /** Creating the very same agent again returns it. */
  create(tenant: string, name: string, input: AgentGiven): Promise<AgentView>;
  get(tenant: string, name: string): Promise<AgentView | undefined>;
  /** Includes the agents in code, ordered by name. */
  list(tenant: string, options?: { cursor?: string; limit?: number }): Promise<AgentPage>;
  replace(tenant: string, name: string, input: AgentReplaced): Promise<AgentView>;
  /**
   * Returns whether there was one, even if code has another of that name. Sessions keep the name, and
   * their turns wait or fail with an entry.
   */
  remove(tenant: string, name: string): Promise<boolean>;
};

type StoredAgentsParts = ActParts & {
  /** Whether stored agents may be in private networks. Default false. */
  allowPrivate?: boolean;
};

type SettingsOptions = {
  /** Whether stored agents may be in private networks. The operator sets this, not the agent's creator. */
  readonly allowPrivate?: boolean;
};

const maxAgents = 10_000;
const maxSettingsBytes = 64 * 1024;
const maxReplaceTries = 5;
const settingNames = [
  ...optionNames.filter((name) => name !== "throttle"),
  "url",
  "headers",
  "protocol",
];
const compactionNames = ["when", "tokenBudget", "triggerRatio", "deadlineMs", "url", "headers"];
const revisionRange = { min: 1, max: Number.MAX_SAFE_INTEGER };

export function createStoredAgents(parts: StoredAgentsParts): StoredAgents {
  const { database, clock, allowPrivate = false } = parts;

  const find = async (tenant: string, name: string): Promise<Row | undefined> =>
    (await database.read(readAgents(tenant, [name])))[0];

  const begin = (action: ActAbout["action"], tenant: string, name: string) =>
    beginAct(parts, { action, subject: name, filter: { tenant } });

  const refuseInCode = async (name: string): Promise<void> => {
    if (!(await agentsInCode(database)).has(name)) return;
    throw new FlotillaError(
      "conflict",
      `the agent ${name} is defined in the code of a running pod: change it there, or choose another name`,
      { details: { name, source: "code" } },
    );
  };

  /** The columns to store for `input`, given the row before. */
  const rowOf = (tenant: string, name: string, input: AgentGiven, before?: Row) => {
    const { kept, settings } = mergeWithStored(input, before, clock.now());
    checkAgentSettings(restoreHeaders(settings, kept), { allowPrivate });
    return {
      tenant,
      name,
      settings: encodeJson("the agent's settings", settings, { maxBytes: maxSettingsBytes }),
      secrets: encodeJson("the agent's secrets", kept, { maxBytes: maxSettingsBytes }),
    };
  };

  const isSame = (row: Row | undefined, stored: { settings: string; secrets: string }) =>
    row?.["settings"] === stored.settings && row["secrets"] === stored.secrets;

  return {
    async create(tenant, name, input) {
      checkAgentName(name);
      checkInput(input, []);
      await refuseInCode(name);
      const row = rowOf(tenant, name, input);
      const act = await begin("agents.create", tenant, name);
      const written = await writeAct(
        parts,
        act,
        {
          statements: (_, entry) => [
            ...createAgent(row, maxAgents, entry),
            readAgents(tenant, [name]),
          ],
        },
        untilKnown,
      );
      const stored = written.tables.at(-1)![0];
      if (stored && (written.stored || isSame(stored, row))) return toView(stored, clock.now());
      if (stored) throw new FlotillaError("conflict", `the agent ${name} already exists`);
      throw new FlotillaError("overloaded", `a tenant can have at most ${maxAgents} agents`);
    },

    async get(tenant, name) {
      checkAgentName(name);
      const facts = (await agentsInCode(database)).get(name);
      const row = await find(tenant, name);
      if (facts) return inCode(name, facts, row !== undefined);
      return row && toView(row, clock.now());
    },

    async list(tenant, options = {}) {
      checkOptions("agents.list", options, ["cursor", "limit"]);
      const { cursor = "", limit = 50 } = options;
      checkNumber("limit", limit, { min: 1, max: 1_000 });
      if (cursor !== "") checkCursor(cursor);
      const coded = await agentsInCode(database);
      const rows = await database.read(listAgents(tenant, cursor, limit));
      const isCut = hasMore(rows);
      const last = rows.at(-1)?.["name"] as string;
      const agents = new Map<string, AgentView>();
      for (const row of rows) agents.set(row["name"], toView(row, clock.now()));
      for (const [name, facts] of coded) {
        // Names after the last row belong on a later page, among the stored agents there.
        if (name > cursor && !(isCut && name > last))
          agents.set(name, inCode(name, facts, agents.has(name)));
      }
      const all = [...agents.values()].toSorted((one, other) => (one.name < other.name ? -1 : 1));
      const page = fitPage(all.slice(0, limit), isCut || all.length > limit);
      return { agents: page.items, next: page.hasMore ? page.items.at(-1)!.name : null };
    },

    async replace(tenant, name, input) {
      checkAgentName(name);
      checkInput(input, ["ifRevision"]);
      const { ifRevision } = input;
      if (ifRevision !== undefined) checkNumber("ifRevision", ifRevision, revisionRange);
      await refuseInCode(name);
      const act = await begin("agents.replace", tenant, name);
      for (let tries = 0; tries < maxReplaceTries; tries++) {
        const before = await find(tenant, name);
        if (!before) throw missingAgent(name);
        const revision = Number(before["revision"]);
        if (act.stored) return toView(before, clock.now());
        if (ifRevision !== undefined && ifRevision !== revision) throw changed(name, revision);
        const row = rowOf(tenant, name, input, before);
        const written = await writeAct(
          parts,
          act,
          {
            statements: (_, entry) => [
              ...replaceAgent(row, revision, entry),
              readAgents(tenant, [name]),
            ],
          },
          untilKnown,
        );
        const stored = written.tables.at(-1)![0];
        // Another caller was faster. Try again, because kept secrets must be the current ones.
        if (stored && (written.stored || isSame(stored, row))) return toView(stored, clock.now());
      }
      throw new FlotillaError("store_busy", `the agent ${name} keeps changing: try again`);
    },

    async remove(tenant, name) {
      checkAgentName(name);
      const act = await begin("agents.remove", tenant, name);
      const { tables, repeated } = await writeAct(
        parts,
        act,
        { statements: (_, entry) => removeAgent(tenant, name, entry), hasAnswer: false },
        untilKnown,
      );
      // It existed, and an earlier send may have removed it.
      if (tables[0]!.length > 0 || repeated) return true;
      await refuseInCode(name);
      return false;
    },
  };
}

/** Returns the settings, or throws an error that says what is wrong with them. */
export function checkAgentSettings(json: unknown, options: SettingsOptions = {}): AgentSettings {
  const what = "the agent's settings";
  checkOptions(what, json as Record<string, unknown>, settingNames);
  const settings = json as AgentSettings;
  if (settings.url === undefined) {
    throw new FlotillaError("invalid_option", `${what} need a \`url\``);
  }
  if (settings.compaction !== undefined) {
    checkOptions(`${what}: compaction`, settings.compaction, compactionNames);
  }
  const full = withSecrets(settings, {}, options);
  checkUrlSource(what, full);
  checkAgentOptions(what, full);
  return settings;
}

/** The stored agent as if it were defined in code. */
export function fromSettings(
  name: string,
  settings: AgentSettings,
  secrets: AgentSecrets,
  options: SettingsOptions = {},
): AgentSpec {
  checkAgentName(name);
  return agent(name, withSecrets(settings, secrets, options));
}

export function storedSettingsOf(row: Row): RedactedSettings {
  return JSON.parse(row["settings"]) as RedactedSettings;
}

export function secretsOf(row: Row): StoredSecrets {
  return { agent: noSecrets, compaction: noSecrets, ...(JSON.parse(row["secrets"]) as object) };
}

function checkInput(input: AgentGiven, more: readonly string[]): void {
  const known = ["settings", "secret", "compactionSecret", "keepOldSecretMs", ...more];
  checkOptions("the agent", input, known);
  if (input.keepOldSecretMs !== undefined) {
    checkNumber("keepOldSecretMs", input.keepOldSecretMs, { min: 0, max: 30 * dayMs });
  }
  if (typeof input.settings !== "object" || input.settings === null) {
    throw new FlotillaError("invalid_option", "settings must be an object with a `url`");
  }
}

/** The new settings, with those stored secrets that stay. */
function mergeWithStored(input: AgentGiven, before: Row | undefined, nowMs: number) {
  const settings = input.settings as AgentSettings;
  const oldSecrets = before && secretsOf(before);
  const oldSettings = before && storedSettingsOf(before);
  const { keepOldSecretMs: keepOldMs = dayMs } = input;
  const mergeEndpoint = (
    what: string,
    kept: StoredSecrets["agent"] | undefined,
    now: { url?: unknown; headers?: unknown },
    earlier: { url?: unknown } | undefined,
    secret: string | null | undefined,
  ) =>
    mergeSecrets(what, kept ?? noSecrets, {
      headers: now.headers,
      secret,
      sameOrigin: originOf(now.url) === originOf(earlier?.url),
      nowMs,
      keepOldMs,
    });
  const { compaction } = settings;
  const hasCompaction = typeof compaction === "object" && compaction !== null;
  const kept: StoredSecrets = {
    agent: mergeEndpoint("the agent", oldSecrets?.agent, settings, oldSettings, input.secret),
    compaction: hasCompaction
      ? mergeEndpoint(
          "compaction",
          oldSecrets?.compaction,
          compaction,
          oldSettings?.compaction,
          input.compactionSecret,
        )
      : noSecrets,
  };
  return { kept, settings: redactHeaders(settings) };
}

function originOf(url: unknown): string | undefined {
  return typeof url === "string" && URL.canParse(url) ? new URL(url).origin : undefined;
}

function inCode(name: string, facts: AgentFacts, shadows: boolean): AgentView {
  return { name, source: "code", facts, ...(shadows && { shadows }) };
}

function toView(row: Row, nowMs: number): AgentView {
  const { agent, compaction } = secretsOf(row);
  return {
    name: row["name"],
    source: "stored",
    settings: storedSettingsOf(row),
    signing: secretViews(agent, nowMs),
    compactionSigning: secretViews(compaction, nowMs),
    revision: Number(row["revision"]),
    createdAtMs: Number(row["created_at"]),
    lastUpdateMs: Number(row["last_update"]),
  };
}

function checkCursor(cursor: unknown): void {
  try {
    checkAgentName(cursor);
  } catch (error) {
    throw new FlotillaError("invalid_option", "cursor must be the `next` of an earlier page", {
      cause: error,
    });
  }
}

function missingAgent(name: string): FlotillaError {
  return new FlotillaError("not_found", `there is no agent ${name}`, { details: { name } });
}

function changed(name: string, revision: number): FlotillaError {
  return new FlotillaError(
    "conflict",
    `the agent ${name} was changed meanwhile and is at revision ${revision} now: read it again`,
    { details: { name, revision } },
  );
}

function withSecrets(
  { compaction, ...settings }: AgentSettings,
  { secret, compactionSecret }: AgentSecrets,
  { allowPrivate = false }: SettingsOptions,
): UrlAgentOptions {
  return {
    ...settings,
    allowPrivate,
    ...(secret !== undefined && { secret }),
    ...(compaction && {
      compaction: {
        ...compaction,
        allowPrivate,
        ...(compactionSecret !== undefined && { secret: compactionSecret }),
      },
    }),
  };
}

/** The agents that live pods define in code, by their metadata. What cannot be read is ignored. */
async function agentsInCode(database: Database): Promise<Map<string, AgentFacts>> {
  const found = new Map<string, AgentFacts>();
  for (const row of await database.read(livePods())) {
    for (const [name, facts] of Object.entries(agentsIn(row["metadata"]))) {
      if (isFacts(facts)) found.set(name, facts);
    }
  }
  return found;
}

function agentsIn(metadata: string): Record<string, unknown> {
  try {
    const { sessions } = JSON.parse(metadata) as { sessions?: { agents?: unknown } };
    const agents = sessions?.agents;
    return typeof agents === "object" && agents !== null ? (agents as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}

function isFacts(value: unknown): value is AgentFacts {
  const { during, attempts } = (value ?? {}) as Partial<AgentFacts>;
  return typeof during === "string" && typeof attempts === "number";
}
