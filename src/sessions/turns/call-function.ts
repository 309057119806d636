import { createHash } from "node:crypto";
import { withFields } from "../../base/log.ts";
import { checkUsage, type UsageLedger } from "../../base/usage.ts";
import { readAgentAnswer } from "../../protocol/agent-http.ts";
import { classifyCall } from "../../throttles/classify.ts";
import type { UIMessage } from "../../protocol/message.ts";
import type { Step } from "../../steps/model.ts";
import type { Header, Turn } from "../conversation/header.ts";
import { AgentFailure, limitFailureOf } from "./failure.ts";
import { createAgentFiles } from "./files.ts";
import type { History } from "./history.ts";
import type { Keyed, RunnerParts } from "./parts.ts";
import { type AnswerStream, readAnswerBody } from "./call-url.ts";
import { readWhileAway } from "./report.ts";
import type { AgentContext, TurnCall } from "../agents/spec.ts";
import { answerIdPrefix } from "../validate.ts";

type FunctionCall = {
  readonly header: Header;
  readonly turn: Turn;
  readonly history: History;
  readonly usage: UsageLedger;
};

export type FunctionCallOptions = {
  readonly signal: AbortSignal;
  /** Says that something goes on, so that the call isn't taken for idle. */
  readonly touch: () => void;
  readonly step: () => Step;
  readonly hear: () => Promise<readonly UIMessage[]>;
};

/** The context that an agent's function gets. */
export function contextOf(
  parts: Pick<RunnerParts, "clock" | "random" | "log" | "enqueue" | "start" | "setWake" | "files">,
  { header, turn, history, usage }: FunctionCall,
  { signal, touch, step, hear }: FunctionCallOptions,
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
    get step() {
      return step();
    },
    ...(turn.wake && { woken: { key: turn.wake.key, atMs: turn.wake.atMs } }),
    wake: (wake) =>
      step()(`wake ${stepNameOf(wake.key)}`, async ({ key }) => {
        // The same in every attempt, and none that a client may give.
        const id = `${answerIdPrefix}wake/${createHash("sha256").update(key).digest("hex")}`;
        const options = { turn: { epoch }, signal };
        const set = await parts.setWake(tenant, sessionId, { ...wake, id, author: agent }, options);
        return { key: set.key, atMs: set.atMs };
      }),
    steering: hear,
    files: createAgentFiles(parts.files, sessionId, readWhileAway(parts, { signal, touch })),
    usage: (tokens) => usage.count(checkUsage(tokens), "report"),
  };
}

/** What tells the steps of wakes apart. A key that is refused is not looked at here. */
function stepNameOf(key: unknown): string {
  return createHash("sha256").update(String(key)).digest("base64url").slice(0, 22);
}

/** The AI SDK's name for the trigger; a tool result counts as submitted. */
export function triggerOf({ trigger }: Turn): AgentContext["trigger"] {
  return trigger === "regenerate" ? "regenerate-message" : "submit-message";
}

/** The return value of an agent's function as chunks. */
export function answerStreamOf(
  returned: unknown,
  touch: () => void,
  { wake }: Pick<Turn, "wake"> = {},
): AnswerStream {
  // An agent that was woken may have nothing to say.
  const said = wake && (returned === undefined || returned === null) ? [] : returned;
  const answer = readAgentAnswer(said, (message) => new AgentFailure("agent_invalid", message));
  if (answer.type === "response") return responseStream(answer.response, touch);
  const { type: _, ...pieces } = answer;
  return { ...pieces, endsByItself: true };
}

/** The failure that an `error` chunk reports. */
export function errorChunkFailure(errorText: string, cause: unknown, nowMs: number): AgentFailure {
  const limit = limitFailureOf(cause);
  if (limit) return limit;
  // The underlying error, if known, tells whether another try may help.
  const kind = cause === undefined ? "ignored" : classifyCall(cause, nowMs).kind;
  return new AgentFailure("agent_failed", errorText, { cause, retryable: kind !== "ignored" });
}

/** Uses the same key for the same call in the same turn, in every attempt. */
function oncePerTurn<Made>(
  make: Keyed<Made>,
  { sessionId, tenant, epoch }: { sessionId: string; tenant: string; epoch: number },
): TurnCall<Made> {
  return (what, input, { toolCallId } = {}) => {
    const name = typeof what === "string" ? what : what.name;
    const identity = toolCallId === undefined ? ["input", sorted(input)] : ["call", toolCallId];
    const hash = createHash("sha256");
    hash.update(JSON.stringify([sessionId, epoch, name, ...identity]));
    return make(what, input, { key: `turn:${hash.digest("hex")}`, tenant });
  };
}

/** The same value with its fields sorted, so that equal inputs serialise alike. */
function sorted(value: unknown): unknown {
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return value.map(sorted);
  if (typeof (value as { toJSON?: unknown }).toJSON === "function") return value;
  const entries = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
  return Object.fromEntries(entries.map(([key, field]) => [key, sorted(field)]));
}

function responseStream(response: Response, touch: () => void): AnswerStream {
  const headers = Object.fromEntries(response.headers);
  const body = (response.body ?? []) as AsyncIterable<Uint8Array> | Iterable<Uint8Array>;
  return {
    chunks: readAnswerBody({ status: response.status, headers, body, nowMs: 0 }, touch),
    endsByItself: false,
  };
}
