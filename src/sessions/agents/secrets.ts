import { createHash } from "node:crypto";
import { FlotillaError } from "../../base/errors.ts";
import { secretKey } from "../../protocol/agent-http.ts";
import type { UrlAgentOptions } from "./agent.ts";
import type { UrlOptions } from "./options.ts";

/** The secrets that sign the requests of a stored agent, and those of its compactor. */
export type AgentSecrets = {
  readonly secret?: string | readonly string[];
  readonly compactionSecret?: string | readonly string[];
};

/**
 * A stored agent as it is created over HTTP: a URL, and those options that JSON can hold. Its secrets are
 * stored separately. Whether it may be in a private network is for the operator to decide.
 */
export type AgentSettings = Omit<
  UrlAgentOptions,
  "throttle" | "secret" | "allowPrivate" | "compaction"
> & {
  compaction?: Omit<
    NonNullable<UrlAgentOptions["compaction"]>,
    "fn" | "secret" | "allowPrivate" | "url" | "headers"
  > &
    Pick<UrlOptions, "url" | "headers">;
};

/**
 * The secrets of a stored agent: the values of its headers, and its signing secrets. They are stored apart
 * from the settings, so that code that shows the settings cannot show them.
 */
export type StoredSecrets = {
  readonly agent: EndpointSecrets;
  readonly compaction: EndpointSecrets;
};

export type EndpointSecrets = {
  readonly headers: Readonly<Record<string, string>>;
  /** Newest first. */
  readonly signing: readonly SigningSecret[];
};

export type SigningSecret = {
  readonly secret: string;
  readonly addedAtMs: number;
  /** Until when a replaced secret still signs; null for the current one. */
  readonly untilMs: number | null;
};

export const noSecrets: EndpointSecrets = { headers: {}, signing: [] };

/** Settings as they are stored and shown, with header names only. */
export type RedactedSettings = Omit<AgentSettings, "headers" | "compaction"> & {
  headers?: HeaderNames;
  compaction?: Omit<NonNullable<AgentSettings["compaction"]>, "headers"> & {
    headers?: HeaderNames;
  };
};
/** The values are null, which in an update means: keep the stored value. */
export type HeaderNames = Readonly<Record<string, null>>;

export type SecretView = {
  /** The beginning of its hash, to tell secrets apart. */
  readonly id: string;
  readonly addedAtMs: number;
  readonly untilMs: number | null;
};

const maxSigningSecrets = 4;

/** A change to an endpoint's headers and signing secrets. */
export type SecretsChange = {
  readonly headers: unknown;
  /** Undefined keeps the secrets, null removes them all, a string replaces the current one. */
  readonly secret: string | null | undefined;
  /** False if the endpoint moves to another origin. */
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

export function secretViews({ signing }: EndpointSecrets, nowMs: number): SecretView[] {
  return signing
    .filter(({ untilMs }) => untilMs === null || untilMs > nowMs)
    .map(({ secret, addedAtMs, untilMs }) => ({
      id: createHash("sha256").update(secret).digest("hex").slice(0, 8),
      addedAtMs,
      untilMs,
    }));
}

/** The settings without the values of headers. */
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

/** The settings with the values of headers, as an agent defined in code has them. */
export function restoreHeaders(settings: RedactedSettings, kept: StoredSecrets): AgentSettings {
  const { headers: _, compaction, ...rest } = settings;
  return {
    ...rest,
    headers: kept.agent.headers,
    ...(compaction && { compaction: { ...compaction, headers: kept.compaction.headers } }),
  } as AgentSettings;
}

/** The secrets that sign now. */
export function activeSecrets({ agent, compaction }: StoredSecrets, nowMs: number): AgentSecrets {
  const now = ({ signing }: EndpointSecrets) =>
    signing.flatMap(({ secret, untilMs }) => (untilMs === null || untilMs > nowMs ? [secret] : []));
  return { secret: now(agent), compactionSecret: now(compaction) };
}

function mergedHeaders(
  what: string,
  before: EndpointSecrets,
  headers: unknown,
  sameOrigin: boolean,
): Record<string, string> {
  if (headers === undefined) return {};
  if (typeof headers !== "object" || headers === null || Array.isArray(headers)) {
    throw new FlotillaError("invalid_option", `${what}: headers must be an object of strings`);
  }
  const kept = Object.entries(headers).map(([name, value]: [string, unknown]) => {
    if (value !== null) return [name, value];
    const quoted = JSON.stringify(name.slice(0, 60));
    if (!Object.hasOwn(before.headers, name)) {
      throw new FlotillaError(
        "invalid_option",
        `${what}: the header ${quoted} has no stored value: give one`,
      );
    }
    // Otherwise a caller who may change an agent could have its secrets sent to a server of their own.
    if (!sameOrigin) {
      throw new FlotillaError(
        "invalid_option",
        `${what}: the header ${quoted} needs its value again, because the agent moves to another host`,
      );
    }
    return [name, before.headers[name]];
  });
  return Object.fromEntries(kept) as Record<string, string>;
}

/** The old secret signs beside the new one for a while, until the agent knows the new one. */
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

function namesOf(headers: Readonly<Record<string, unknown>>): HeaderNames {
  return Object.fromEntries(Object.keys(headers).map((name) => [name, null]));
}
