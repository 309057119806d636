import { createHash } from "node:crypto";
import { FlotillaError } from "../../base/errors.ts";
import { secretKey } from "../../protocol/agent-http.ts";
import type { AgentSecrets, AgentSettings } from "./stored-agents.ts";

/**
 * What of a stored agent nobody gets to see again: the values of its headers, and what signs its
 * requests. It is kept apart from the settings, so that whatever shows those can't show this.
 */
export type StoredSecrets = {
  readonly agent: EndpointSecrets;
  readonly compaction: EndpointSecrets;
};

export type EndpointSecrets = {
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

export const noSecrets: EndpointSecrets = { headers: {}, signing: [] };

/** Settings as they are stored and shown: headers by their names alone. */
export type RedactedSettings = Omit<AgentSettings, "headers" | "compaction"> & {
  headers?: HeaderNames;
  compaction?: Omit<NonNullable<AgentSettings["compaction"]>, "headers"> & {
    headers?: HeaderNames;
  };
};
/** The values are null, which in settings that are written means: as it is. */
export type HeaderNames = Readonly<Record<string, null>>;

export type SecretView = {
  /** The start of its hash, by which two can be told apart. */
  readonly id: string;
  readonly addedAtMs: number;
  readonly untilMs: number | null;
};

const maxSigningSecrets = 4;

/** How a place's headers and secrets are to be, given what is asked for and what there was. */
export type SecretsChange = {
  readonly headers: unknown;
  /** Undefined leaves what there is, null takes it all away, text takes the place of what there is. */
  readonly secret: string | null | undefined;
  /** False where it goes to another origin than before. */
  readonly sameOrigin: boolean;
  readonly nowMs: number;
  readonly keepOldMs: number;
};

export function mergeSecrets(
  what: string,
  before: EndpointSecrets,
  change: SecretsChange,
): EndpointSecrets {
  const { headers, secret, sameOrigin } = change;
  return {
    headers: mergedHeaders(what, before, headers, sameOrigin),
    signing: mergedSigning(what, before.signing, secret, change),
  };
}

function mergedHeaders(
  what: string,
  before: EndpointSecrets,
  headers: unknown,
  sameOrigin: boolean,
): Record<string, string> {
  if (headers === undefined) return {};
  if (typeof headers !== "object" || headers === null || Array.isArray(headers)) {
    throw new FlotillaError("invalid_option", `${what}: headers must be an object of texts`);
  }
  const kept = Object.entries(headers).map(([name, value]: [string, unknown]) => {
    if (value !== null) return [name, value];
    const quoted = JSON.stringify(name.slice(0, 60));
    if (!Object.hasOwn(before.headers, name)) {
      throw new FlotillaError("invalid_option", `${what}: the header ${quoted} has no value yet`);
    }
    // Whoever may change an agent shouldn't learn its secrets by having them sent elsewhere.
    if (!sameOrigin) {
      throw new FlotillaError(
        "invalid_option",
        `${what}: the value of the header ${quoted} has to be given anew, because it goes to another host now`,
      );
    }
    return [name, before.headers[name]];
  });
  return Object.fromEntries(kept) as Record<string, string>;
}

/** The old one goes on signing beside the new one for a while, until the agent knows the new one. */
function mergedSigning(
  what: string,
  before: readonly SigningSecret[],
  secret: string | null | undefined,
  { nowMs, keepOldMs }: SecretsChange,
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
  return [{ secret, addedAtMs: nowMs, untilMs: null }, ...older].slice(0, maxSigningSecrets);
}

export function secretViews({ signing }: EndpointSecrets, nowMs: number): SecretView[] {
  return signing
    .filter(({ untilMs }) => untilMs === null || untilMs > nowMs)
    .map(({ secret, addedAtMs, untilMs }) => ({
      id: createHash("sha256").update(secret).digest("hex").slice(0, 8),
      addedAtMs,
      untilMs,
    }));
}

/** What is left of settings once the values of headers are taken out. */
export function redactHeaders(settings: AgentSettings): RedactedSettings {
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
  } as RedactedSettings;
}

function namesOf(headers: Readonly<Record<string, unknown>>): HeaderNames {
  return Object.fromEntries(Object.keys(headers).map((name) => [name, null]));
}

/** The settings whole again, as an agent that was declared in code has them. */
export function restoreHeaders(settings: RedactedSettings, kept: StoredSecrets): AgentSettings {
  const { headers: _, compaction, ...rest } = settings;
  return {
    ...rest,
    headers: kept.agent.headers,
    ...(compaction && { compaction: { ...compaction, headers: kept.compaction.headers } }),
  } as AgentSettings;
}

/** What signs now. */
export function activeSecrets({ agent, compaction }: StoredSecrets, nowMs: number): AgentSecrets {
  const now = ({ signing }: EndpointSecrets) =>
    signing.flatMap(({ secret, untilMs }) => (untilMs === null || untilMs > nowMs ? [secret] : []));
  return { secret: now(agent), compactionSecret: now(compaction) };
}
