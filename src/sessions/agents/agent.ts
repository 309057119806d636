import { FlotillaError } from "../../base/errors.ts";
import type { AgentFunction, AgentSpec } from "./spec.ts";
import { checkChoice, checkOptions } from "../../base/options.ts";
import { checkBudget } from "../../base/usage.ts";
import type { UIMessage } from "../../protocol/message.ts";
import type { AgentFacts } from "../conversation/command.ts";
import {
  type AgentOptions,
  checkAgentName,
  checkAgentOptions,
  checkUrlSource,
  type FunctionOptions,
  functionOptionNames,
  optionNames,
  type UrlOptions,
} from "./options.ts";

export type UrlAgentOptions = AgentOptions &
  UrlOptions & {
    /** What it speaks: the stream of the AI SDK (the default), or AG-UI. */
    protocol?: "ai-sdk" | "ag-ui";
  };

const urlOptionNames = [...optionNames, "url", "headers", "secret", "allowPrivate", "protocol"];

/**
 * Defines an agent that answers in sessions: a function, or a URL that speaks the AI SDK's protocol or AG-UI. A
 * function gets messages as `Message`, such as the AI SDK's own `UIMessage`.
 */
export function agent<Message = UIMessage>(
  name: string,
  options: FunctionOptions,
  run: AgentFunction<Message>,
): AgentSpec;
export function agent<Message = UIMessage>(name: string, run: AgentFunction<Message>): AgentSpec;
export function agent(name: string, options: UrlAgentOptions): AgentSpec;
export function agent(
  name: string,
  first: FunctionOptions | UrlAgentOptions | AgentFunction,
  second?: AgentFunction,
): AgentSpec {
  checkAgentName(name);
  const what = `agent "${name}"`;
  if (typeof first === "function") return ofFunction(name, {}, first);
  checkOptions(what, first, second === undefined ? urlOptionNames : functionOptionNames);
  if (second !== undefined) return ofFunction(name, first, second);
  if (!("url" in first)) {
    throw new FlotillaError("invalid_option", `${what} needs a function or a \`url\``);
  }
  const { protocol = "ai-sdk" } = first;
  checkChoice(`${what}: protocol`, protocol, ["ai-sdk", "ag-ui"]);
  const spoken = protocol === "ag-ui" ? { protocol } : {};
  const source = { type: "url", ...checkUrlSource(what, first), ...spoken } as const;
  return { name, source, ...checkAgentOptions(what, first) };
}

function ofFunction(name: string, options: FunctionOptions, run: AgentFunction): AgentSpec {
  const what = `agent "${name}"`;
  if (typeof run !== "function") {
    throw new FlotillaError("invalid_option", `${what}: the last argument must be a function`);
  }
  const { budget } = options;
  return {
    name,
    source: { type: "function", run },
    ...checkAgentOptions(what, options),
    ...(budget && { budget: checkBudget(what, budget) }),
  };
}

/** What the owner of a session must know about an agent to decide. */
export function factsOfSpec(spec: AgentSpec): AgentFacts {
  const { debounceMs, attempts, compaction } = spec;
  const during =
    spec.during === "steer"
      ? ({ during: "queue", steers: true } as const)
      : ({ during: spec.during } as const);
  if (!compaction) return { ...during, debounceMs, attempts, compaction: null };
  const { when, tokenBudget, triggerRatio } = compaction;
  return { ...during, debounceMs, attempts, compaction: { when, tokenBudget, triggerRatio } };
}
