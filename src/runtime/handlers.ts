import { FlotillaError } from "../base/errors.ts";
import { nearest } from "../base/options.ts";
import { withFollowUps } from "../tasks/finish/outcome.ts";
import type { Flow } from "../flows/flow.ts";
import { flowHandler, isFlow } from "../flows/drive/drive.ts";
import type { TaskHandler } from "../tasks/model.ts";
import type { AgentSpec } from "../sessions/agents/spec.ts";

// A claim has one select per name in a compound statement, and SQLite allows 500 of them.
const maxHandlers = 500;

/** What a config's `use` takes: handlers of tasks, flows, and agents. */
export type Usable = Workable | AgentSpec;

/** The handlers of tasks and runs. */
export type Workable = TaskHandler | Flow;

export function workablesOf(use: readonly Usable[]): Workable[] {
  return use.filter((each): each is Workable => !isAgent(each));
}

/** Whether a value was made by `agent(…)`. */
export function isAgent(value: Usable): value is AgentSpec {
  return typeof value === "object" && value !== null && "source" in value && "during" in value;
}

/** Every agent of a program by its name. */
export function agentsByName(use: readonly Usable[]): Map<string, AgentSpec> {
  const agents = new Map<string, AgentSpec>();
  for (const each of use.filter(isAgent)) {
    if (agents.has(each.name)) {
      throw new FlotillaError("invalid_option", `use: two agents are named "${each.name}"`);
    }
    agents.set(each.name, each);
  }
  return agents;
}

/** Every handler of a program by its task's name, including those of `onFailure`. */
export function handlersByName(use: readonly Usable[]): Map<string, TaskHandler> {
  const handlers = new Map<string, TaskHandler>();
  if (!Array.isArray(use)) {
    throw new FlotillaError("invalid_option", "use must be an array of handlers");
  }
  const declared = workablesOf(use).map((each) =>
    isFlow(each) ? flowHandler(each) : (each as TaskHandler),
  );
  for (const handler of declared) {
    if (typeof handler?.run === "function") continue;
    throw new FlotillaError(
      "invalid_option",
      `use: ${JSON.stringify(handler?.name ?? handler)} has no handler; pass what \`${handler?.isFlow ? ".end()" : ".handle(…)"}\` returned`,
    );
  }
  const all = withFollowUps(declared);
  if (all.length > maxHandlers) {
    throw new FlotillaError(
      "invalid_option",
      `use: a pod takes at most ${maxHandlers} handlers, not ${all.length}: spread them over several pods`,
    );
  }
  checkQueues(all);
  for (const handler of all) {
    if (handlers.has(handler.name)) {
      throw new FlotillaError("invalid_option", `use: two handlers for the task "${handler.name}"`);
    }
    handlers.set(handler.name, handler);
  }
  return handlers;
}

/** The handlers of a pod: those that `only` names with their `onFailure`, or all. */
export function selectHandlers(
  use: readonly Usable[],
  only: readonly string[] | undefined,
): Map<string, TaskHandler> {
  const all = handlersByName(use);
  if (only === undefined) return all;
  if (!Array.isArray(only) || only.length === 0) {
    throw new FlotillaError("invalid_option", "only must name at least one task of `use`");
  }
  for (const name of only) {
    if (all.has(name)) continue;
    const meant = typeof name === "string" ? nearest(name, [...all.keys()]) : undefined;
    const hint = meant ? `, did you mean "${meant}"?` : "";
    const shown = JSON.stringify(name)?.slice(0, 80);
    throw new FlotillaError("invalid_option", `only: \`use\` has no handler for ${shown}${hint}`);
  }
  const chosen = [...new Set(only)].map((name) => all.get(name)!);
  return handlersByName(chosen.filter((each) => !chosen.some((other) => other.onFailure === each)));
}

/** A queue has one limit for all flows. */
function checkQueues(handlers: readonly TaskHandler[]): void {
  const limits = new Map<string, number>();
  for (const { name, queue } of handlers) {
    if (queue === undefined) continue;
    const limit = limits.get(queue.name) ?? queue.limit;
    limits.set(queue.name, limit);
    if (limit === queue.limit) continue;
    throw new FlotillaError(
      "invalid_option",
      `use: the queue "${queue.name}" has the limit ${limit} in one flow and ${queue.limit} in "${name}": use the same limit`,
    );
  }
}
