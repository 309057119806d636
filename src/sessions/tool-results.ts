import { FlotillaError, hasCode } from "../base/errors.ts";
import type { Ids } from "../base/ids.ts";
import { encodeJson, type Json } from "../base/json.ts";
import { checkText } from "../base/options.ts";
import { check } from "../base/schema.ts";
import type { TraceHeaders } from "../base/trace-context.ts";
import { isOpenCall, isWaitingCall, laterOf } from "../protocol/later.ts";
import type { Entry, Part, ToolResult } from "../protocol/message.ts";
import { applyToolResults } from "../protocol/view.ts";
import { schemaOf } from "../steps/later.ts";
import type { Audited, Target, Traced } from "./conversation/command.ts";
import type { Header } from "./conversation/header.ts";
import type { CallDeadline } from "./log/call-deadline.ts";
import type { CommandRouter } from "./log/command-router.ts";
import type { Reads } from "./log/journal.ts";
import type { Sent, SessionService } from "./service.ts";
import { checkGivenId, checkResults, maxIdChars } from "./validate.ts";

type ToolResultsParts = {
  journal: Pick<Reads, "entries" | "tail" | "storedIds">;
  router: Pick<CommandRouter, "submit">;
  ids: Ids;
  maxPayloadBytes: number;
  tracedBy: (headers: TraceHeaders | undefined) => Traced;
  headerOf: (tenant: string, sessionId: string) => Promise<Header>;
  startDeadline: () => CallDeadline;
  /** Submits a command about an answer. If that is replaced before the decision, reads it again. */
  submitAbout: <Result>(
    tenant: string,
    sessionId: string,
    messageId: string,
    submit: (answer: Entry, target: Target, deadline: CallDeadline) => Promise<Result>,
  ) => Promise<Result>;
  /** The entry of an operator's act on a session; undefined for others. */
  operatedAs: (
    action: "sessions.decide" | "sessions.signal",
    session: { readonly tenant: string; readonly sessionId: string },
    filter: object,
    author: string,
  ) => Promise<Audited> | undefined;
};

/** Results of calls of an answer, as they are submitted. */
type NewResults = {
  readonly tenant: string;
  readonly sessionId: string;
  readonly clientId: string;
  readonly author: string;
  readonly results: readonly ToolResult[];
} & Traced &
  Audited;

const maxSignalNameChars = 200;
/** How far back a call is searched that waits for a signal. */
const maxSearchedEntries = 10_000;
const pageEntries = 500;
const pageBytes = 1024 * 1024;
/** How many decisions about calls are in an act's entry. */
const maxCallsAudited = 20;

/** Results of tool calls: from clients and users, with signals, and outputs that come later. */
export function createToolResults(
  parts: ToolResultsParts,
): Pick<SessionService, "toolResult" | "signal" | "bring"> {
  const { journal, router, ids, maxPayloadBytes, submitAbout } = parts;

  /** The parts of an answer with the results since. */
  const partsNow = async (sessionId: string, answer: Entry): Promise<readonly Part[]> => {
    let now = answer.parts;
    for (let after = answer.seq; ;) {
      const range = { after, limit: pageEntries, maxBytes: pageBytes };
      const page = await journal.entries(sessionId, range);
      for (const { results } of page) {
        if (results?.messageId === answer.messageId) now = applyToolResults(now, results.results);
      }
      if (page.length === 0) return now;
      after = page.at(-1)!.seq;
    }
  };

  /** A result that is stored under this id. */
  const storedUnder = async (
    { sessionId, clientId }: Pick<NewResults, "sessionId" | "clientId">,
    messageId: string,
    deadline: CallDeadline,
  ): Promise<Sent | undefined> => {
    const [stored] = await deadline.read(() => journal.storedIds([{ sessionId, clientId }]));
    return stored && { seq: stored.seq, messageId, duplicate: true };
  };

  /**
   * Stores results. If outputs of the answer's calls come later, those that have a result keep it, and the
   * agent continues once none is open: models refuse a call without a result. Undefined if all of them
   * have one.
   */
  const store = async (
    { tenant, sessionId, ...given }: NewResults,
    answer: Entry,
    target: Target,
    deadline: CallDeadline,
  ): Promise<Sent | undefined> => {
    const { results } = given;
    const { messageId } = target;
    const isExact = answer.parts.some((part) => laterOf(part) !== undefined);
    const now = isExact ? await deadline.read(() => partsNow(sessionId, answer)) : [];
    const open = now.filter(isOpenCall).map((part) => part["toolCallId"]);
    const isAbout = (id: unknown) => results.some(({ toolCallId }) => toolCallId === id);
    if (isExact && !open.some(isAbout)) return undefined;
    const command = {
      type: "tool_result",
      ...given,
      messageId,
      target,
      tokens: Math.ceil(JSON.stringify(results).length / 4),
      ...(isExact && { isExact }),
      ...(!open.every(isAbout) && { waits: true as const }),
    } as const;
    const timeoutMs = deadline.leftMs;
    const result = await router.submit(tenant, sessionId, command, { timeoutMs });
    const { seq, duplicate = false } = result;
    return { seq: seq!, messageId, duplicate };
  };

  /** The newest call that waits for a signal, with the id of its message. */
  const waitingFor = async (
    sessionId: string,
    signal: string,
  ): Promise<{ messageId: string; part: Part } | undefined> => {
    const seen = new Set<string>();
    const since = new Map<string, ToolResult[]>();
    let upTo = Number.MAX_SAFE_INTEGER;
    for (let left = maxSearchedEntries; left > 0;) {
      const page = { after: 0, upTo, limit: Math.min(left, pageEntries), maxBytes: pageBytes };
      const entries = await journal.tail(sessionId, page);
      if (entries.length === 0) return undefined;
      for (const { kind, role, messageId, outcome, parts: said, results } of entries.toReversed()) {
        if (results) {
          const later = since.get(results.messageId) ?? [];
          since.set(results.messageId, [...results.results, ...later]);
        }
        if (kind !== "message" || role !== "assistant" || seen.has(messageId)) continue;
        seen.add(messageId);
        if (outcome !== "completed") continue;
        const part = applyToolResults(said, since.get(messageId) ?? []).find(
          (each) => isWaitingCall(each) && laterOf(each)!.signal === signal,
        );
        if (part) return { messageId, part };
      }
      upTo = entries[0]!.seq - 1;
      left -= entries.length;
    }
    return undefined;
  };

  return {
    async toolResult(tenant, sessionId, { id = ids.next(), author, messageId, results, trace }) {
      checkText("author", author, { max: maxIdChars });
      checkGivenId("id", id);
      checkResults(results, maxPayloadBytes);
      const traced = parts.tracedBy(trace);
      const calls = decisionsIn(results);
      const session = { tenant, sessionId };
      const audited =
        calls && parts.operatedAs("sessions.decide", session, { messageId, calls }, author);
      const ofCaller = { author, ...traced, ...(audited && (await audited)) };
      const given = { tenant, sessionId, clientId: id, results, ...ofCaller };
      return submitAbout(tenant, sessionId, messageId, async (answer, target, deadline) => {
        const stray = strayAmong(results, answer);
        await checkOutputs(results, answer);
        const sent = stray === undefined && (await store(given, answer, target, deadline));
        if (sent) return sent;
        // The result may be stored already, for calls that a replaced answer no longer has.
        const stored = await storedUnder(given, target.messageId, deadline);
        if (stored) return stored;
        if (stray !== undefined) throw noCall(stray);
        return { seq: target.seq, messageId: target.messageId, duplicate: true };
      });
    },
    async signal(tenant, sessionId, signal) {
      const { id = ids.next(), author = "program", name, payload = null, trace } = signal;
      checkText("author", author, { max: maxIdChars });
      checkGivenId("id", id);
      checkText("the signal's name", name, { max: maxSignalNameChars });
      const what = `the signal "${name}"`;
      encodeJson(what, payload, { maxBytes: maxPayloadBytes });
      const deadline = parts.startDeadline();
      await deadline.read(() => parts.headerOf(tenant, sessionId));
      const stored = await storedUnder({ sessionId, clientId: id }, "", deadline);
      if (stored) return { seq: stored.seq, duplicate: true };
      const found = await deadline.read(() => waitingFor(sessionId, name));
      if (!found) throw nothingWaits(sessionId, name);
      const { messageId, part } = found;
      await checkPayload(part, payload, what);
      const results = [{ toolCallId: part["toolCallId"] as string, output: payload }];
      const traced = parts.tracedBy(trace);
      const session = { tenant, sessionId };
      const audited = parts.operatedAs("sessions.signal", session, { signal: name }, author);
      const ofCaller = { author, ...traced, ...(audited && (await audited)) };
      const given = { tenant, sessionId, clientId: id, results, ...ofCaller };
      const sent = await submitAbout(tenant, sessionId, messageId, (answer, target, left) =>
        store(given, answer, target, left),
      );
      if (!sent) throw nothingWaits(sessionId, name);
      return { seq: sent.seq, duplicate: sent.duplicate };
    },
    async bring(tenant, sessionId, { id, epoch, author, messageId, result }) {
      const results = [result];
      checkResults(results, maxPayloadBytes);
      const deadline = parts.startDeadline();
      try {
        const { status, work } = await deadline.read(() => parts.headerOf(tenant, sessionId));
        if (status === "archived") return "dropped";
        if (work?.type === "turn" && work.epoch === epoch) return "under_way";
        const given = { tenant, sessionId, clientId: id, author, results };
        const sent = await submitAbout(tenant, sessionId, messageId, async (answer, target, left) =>
          // What was stopped or has failed is not taken up again by itself.
          answer.outcome === "completed" ? store(given, answer, target, left) : undefined,
        );
        return sent ? "stored" : "dropped";
      } catch (error) {
        // The session, the answer or the agent is gone, or it was archived.
        const isGone = hasCode(error, "not_found", "invalid_input", "conflict");
        if (!isGone || error.details?.["replaced"] === true) throw error;
        return "dropped";
      }
    },
  };
}

/** The calls that the results approve or deny; undefined if one of them is an output, which is no act. */
function decisionsIn(results: readonly ToolResult[]): object[] | undefined {
  if (!results.every((result) => "approved" in result)) return undefined;
  return results
    .slice(0, maxCallsAudited)
    .map(({ toolCallId, approved }) => ({ toolCallId, approved }));
}

/** A result makes the agent continue, so it must belong to one of the agent's calls. */
function strayAmong(results: readonly ToolResult[], { parts }: Entry): string | undefined {
  const calls = new Set(parts.map((part) => part["toolCallId"]));
  return results.find(({ toolCallId }) => !calls.has(toolCallId))?.toolCallId;
}

/** An output for a call that waits for a signal is checked as the signal's payload is. */
async function checkOutputs(results: readonly ToolResult[], { parts }: Entry): Promise<void> {
  for (const result of results) {
    if (!("output" in result)) continue;
    const { toolCallId, output } = result;
    const part = parts.find((each) => each["toolCallId"] === toolCallId && isWaitingCall(each));
    const call = JSON.stringify(toolCallId.slice(0, 80));
    if (part) await checkPayload(part, output, `the output of tool call ${call}`);
  }
}

async function checkPayload(part: Part, payload: Json, what: string): Promise<void> {
  const { schema } = laterOf(part)!;
  if (schema !== undefined) await check(schemaOf(schema), payload, what, "invalid_input");
}

function noCall(toolCallId: string): FlotillaError {
  const quoted = JSON.stringify(toolCallId.slice(0, 80));
  return new FlotillaError("invalid_input", `the message has no tool call ${quoted}`);
}

function nothingWaits(sessionId: string, name: string): FlotillaError {
  return new FlotillaError(
    "conflict",
    `nothing in session ${sessionId} waits for the signal "${name}": another was first, or the answer with the call has not ended yet`,
  );
}
