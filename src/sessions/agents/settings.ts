import { FlotillaError } from "../../base/errors.ts";
import { checkOptions } from "../../base/options.ts";
import { checkAgentName, checkAgentOptions, optionNames } from "./options.ts";
import { agent, type UrlAgentOptions } from "./agent.ts";
import { checkUrlSource, type UrlOptions } from "./sources.ts";
import type { AgentSpec } from "./spec.ts";

/**
 * An agent as it is made over HTTP and stored: a URL, and what JSON can hold of the options. Its secrets
 * are kept apart, and whether it may be in a private network isn't for whoever makes it to say.
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

/** What signs the requests of a stored agent, and those of its compactor. */
export type AgentSecrets = {
  readonly secret?: string | readonly string[];
  readonly compactionSecret?: string | readonly string[];
};

const settingNames = [...optionNames.filter((name) => name !== "throttle"), "url", "headers"];
const compactionNames = ["when", "tokenBudget", "triggerRatio", "deadlineMs", "url", "headers"];

export type SettingsOptions = {
  /** Whether agents made over HTTP may be in private networks: the operator's word, not the agent's. */
  readonly allowPrivate?: boolean;
};

/** Refuses what can't be an agent's settings, with an error that says why, and gives them back. */
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

/** The same agent as if it had been declared in code. */
export function fromSettings(
  name: string,
  settings: AgentSettings,
  secrets: AgentSecrets,
  options: SettingsOptions = {},
): AgentSpec {
  checkAgentName(name);
  return agent(name, withSecrets(settings, secrets, options));
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
