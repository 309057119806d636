import { createHash } from "node:crypto";
import { withFields } from "../../base/log.ts";
import type { AgentContext, TurnCall } from "../agents/function.ts";
import type { Header, Turn } from "../conversation/header.ts";
import type { History } from "./history.ts";
import type { Keyed, RunnerParts } from "./parts.ts";

/** What an agent's function is given. */
export function contextOf(
  parts: Pick<RunnerParts, "log" | "enqueue" | "start">,
  { header, turn, history }: { header: Header; turn: Turn; history: History },
  signal: AbortSignal,
): AgentContext {
  const { sessionId, tenant } = header;
  const { epoch, attempt, agent, messageId } = turn;
  const { messages, user, summary } = history;
  return {
    messages,
    sessionId,
    tenant,
    ...(user !== undefined && { user }),
    ...(summary !== undefined && { summary }),
    epoch,
    attempt,
    signal,
    log: withFields(parts.log, { session: sessionId, agent, epoch, attempt }),
    trigger: triggerOf(turn),
    messageId,
    enqueue: oncePerTurn(parts.enqueue, { sessionId, tenant, epoch }),
    start: oncePerTurn(parts.start, { sessionId, tenant, epoch }),
  };
}

/** As the AI SDK names it; a result of a tool is submitted too. */
export function triggerOf({ trigger }: Turn): AgentContext["trigger"] {
  return trigger === "regenerate" ? "regenerate-message" : "submit-message";
}

/** The same key for the same thing asked in the same turn, by whichever attempt. */
function oncePerTurn<Made>(
  make: Keyed<Made>,
  { sessionId, tenant, epoch }: { sessionId: string; tenant: string; epoch: number },
): TurnCall<Made> {
  return (what, input, { toolCallId } = {}) => {
    const name = typeof what === "string" ? what : what.name;
    const asked = toolCallId === undefined ? ["input", sorted(input)] : ["call", toolCallId];
    const hash = createHash("sha256");
    hash.update(JSON.stringify([sessionId, epoch, name, ...asked]));
    return make(what, input, { key: `turn:${hash.digest("hex")}`, tenant });
  };
}

/** The same value with its fields in one order, so that equal inputs are written alike. */
function sorted(value: unknown): unknown {
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return value.map(sorted);
  if (typeof (value as { toJSON?: unknown }).toJSON === "function") return value;
  const entries = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
  return Object.fromEntries(entries.map(([key, field]) => [key, sorted(field)]));
}
