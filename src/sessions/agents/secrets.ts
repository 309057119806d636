import { createHash } from "node:crypto";
import { FlotillaError } from "../../base/errors.ts";
import { secretKey } from "../../protocol/agent-http.ts";
import type { AgentSecrets, AgentSettings } from "./stored-agents.ts";

/**
 * What of a stored agent nobody gets to see again: the values of its headers, and what signs its
 * requests. It is kept apart from the settings, so that whatever shows those can't show this.
 */
export type KeptSecrets = { readonly agent: PlaceSecrets; readonly compaction: PlaceSecrets };

export type PlaceSecrets = {
  readonly headers: Readonly<Record<string, string>>;
  /** The newest first. */
  readonly signing: readonly SigningSecret[];
};

export type SigningSecret = {
  readonly secret: string;
  readonly addedAtMs: number;
  /** Until when one that was replaced still signs; null of the one in use. */
  readonly untilMs: number | null;
};

export const noSecrets: PlaceSecrets = { headers: {}, signing: [] };

/** Settings as they are stored and shown: headers by their names alone. */
export type ShownSettings = Omit<AgentSettings, "headers" | "compaction"> & {
  headers?: HeaderNames;
  compaction?: Omit<NonNullable<AgentSettings["compaction"]>, "headers"> & {
    headers?: HeaderNames;
  };
};
/** The values are null, which in settings that are written means: as it is. */
export type HeaderNames = Readonly<Record<string, null>>;

export type ShownSecret = {
  /** The start of its hash, by which two can be told apart. */
  readonly id: string;
  readonly addedAtMs: number;
  readonly untilMs: number | null;
};

const signingMost = 4;

/** How a place's headers and secrets are to be, given what is asked for and what there was. */
export type Asked = {
  readonly headers: unknown;
  /** Undefined leaves what there is, null takes it all away, text takes the place of what there is. */
  readonly secret: string | null | undefined;
  /** False where it goes to another origin than before. */
  readonly sameOrigin: boolean;
  readonly nowMs: number;
  readonly keepOldMs: number;
};

export function keepSecrets(what: string, before: PlaceSecrets, asked: Asked): PlaceSecrets {
  const { headers, secret, sameOrigin } = asked;
  return {
    headers: keptHeaders(what, before, headers, sameOrigin),
    signing: keptSigning(what, before.signing, secret, asked),
  };
}

function keptHeaders(
  what: string,
  before: PlaceSecrets,
  given: unknown,
  sameOrigin: boolean,
): Record<string, string> {
  if (given === undefined) return {};
  if (typeof given !== "object" || given === null || Array.isArray(given)) {
    throw new FlotillaError("invalid_option", `${what}: headers must be an object of texts`);
  }
  const kept = Object.entries(given).map(([name, value]: [string, unknown]) => {
    if (value !== null) return [name, value];
    const shown = JSON.stringify(name.slice(0, 60));
    if (!Object.hasOwn(before.headers, name)) {
      throw new FlotillaError("invalid_option", `${what}: the header ${shown} has no value yet`);
    }
    // Whoever may change an agent shouldn't learn its secrets by having them sent elsewhere.
    if (!sameOrigin) {
      throw new FlotillaError(
        "invalid_option",
        `${what}: the value of the header ${shown} has to be given anew, because it goes to another host now`,
      );
    }
    return [name, before.headers[name]];
  });
  return Object.fromEntries(kept) as Record<string, string>;
}

/** The old one goes on signing beside the new one for a while, until the agent knows the new one. */
function keptSigning(
  what: string,
  before: readonly SigningSecret[],
  secret: string | null | undefined,
  { nowMs, keepOldMs }: Asked,
): SigningSecret[] {
  const inUse = before.filter(({ untilMs }) => untilMs === null || untilMs > nowMs);
  if (secret === undefined) return inUse;
  if (secret === null) return [];
  secretKey(what, secret);
  if (inUse[0]?.secret === secret && inUse[0].untilMs === null) return inUse;
  const older = inUse
    .filter((each) => each.secret !== secret)
    .map((each) => ({ ...each, untilMs: Math.min(each.untilMs ?? Infinity, nowMs + keepOldMs) }))
    .filter(({ untilMs }) => untilMs > nowMs);
  return [{ secret, addedAtMs: nowMs, untilMs: null }, ...older].slice(0, signingMost);
}

export function shownSecrets({ signing }: PlaceSecrets, nowMs: number): ShownSecret[] {
  return signing
    .filter(({ untilMs }) => untilMs === null || untilMs > nowMs)
    .map(({ secret, addedAtMs, untilMs }) => ({
      id: createHash("sha256").update(secret).digest("hex").slice(0, 8),
      addedAtMs,
      untilMs,
    }));
}

/** What is left of settings once the values of headers are taken out. */
export function withoutValues(settings: AgentSettings): ShownSettings {
  const { headers, compaction, ...rest } = settings;
  return {
    ...rest,
    ...(headers && { headers: namesOf(headers) }),
    ...(compaction && {
      compaction: {
        ...compaction,
        ...(compaction.headers && { headers: namesOf(compaction.headers) }),
      },
    }),
  } as ShownSettings;
}

function namesOf(headers: Readonly<Record<string, unknown>>): HeaderNames {
  return Object.fromEntries(Object.keys(headers).map((name) => [name, null]));
}

/** The settings whole again, as an agent that was declared in code has them. */
export function withValues(settings: ShownSettings, kept: KeptSecrets): AgentSettings {
  const { headers: _, compaction, ...rest } = settings;
  return {
    ...rest,
    headers: kept.agent.headers,
    ...(compaction && { compaction: { ...compaction, headers: kept.compaction.headers } }),
  } as AgentSettings;
}

/** What signs now. */
export function signingNow({ agent, compaction }: KeptSecrets, nowMs: number): AgentSecrets {
  const now = ({ signing }: PlaceSecrets) =>
    signing.flatMap(({ secret, untilMs }) => (untilMs === null || untilMs > nowMs ? [secret] : []));
  return { secret: now(agent), compactionSecret: now(compaction) };
}
