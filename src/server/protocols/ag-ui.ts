import { createHash } from "node:crypto";
import type { Clock } from "../../base/clock.ts";
import { FlotillaError, hasCode } from "../../base/errors.ts";
import { isJsonObject, type Json } from "../../base/json.ts";
import type { Logger } from "../../base/log.ts";
import type { TraceHeaders } from "../../base/trace-context.ts";
import {
  type AgUiEvent,
  answerOf,
  createAnswerTeller,
  isOfAnswer,
  type Tell,
} from "../../protocol/ag-ui/to-events.ts";
import {
  type RunPlace,
  runPlaceIn,
  runPlaceText,
  type AnswerPlace,
} from "../../protocol/ag-ui/place.ts";
import { type Assembler, createAssembler } from "../../protocol/assembler/assembler.ts";
import type { Chunk } from "../../protocol/chunk.ts";
import { isWaitingCall } from "../../protocol/later.ts";
import {
  type Entry,
  isTurn,
  type Part,
  type SessionState,
  type ToolResult,
} from "../../protocol/message.ts";
import type { FeedEvent, SessionService } from "../../sessions/service.ts";
import { type TenantQuotas, whileAdmitted } from "../admission/tenant-quotas.ts";
import { checkCreated, checkNamed, messageFrom, traceFrom, withCaller } from "../api/sessions.ts";
import { traceOf } from "../api/tasks.ts";
import { type Caller, requireVerb } from "../auth/caller.ts";
import { type Members, watchMembership } from "../auth/members.ts";
import { type EventStreams, type EventWriter, unbuffered } from "../event-streams.ts";
import { route, type Route } from "../route.ts";
import type { Serializer } from "../serializer.ts";
import { frameErrorOf } from "../socket/send-buffer.ts";
import { validate } from "../validate.ts";
import { agUiContent, type AgUiMessage, agUiSpecs, type RunAgentInput } from "./ag-ui.schema.ts";

export type AgUiParts = {
  sessions: Pick<SessionService, "create" | "get" | "join" | "send" | "toolResult" | "entries">;
  members: Members;
  quotas?: Pick<TenantQuotas, "session" | "write"> | undefined;
  streams: EventStreams;
  serializer: Serializer;
  clock: Clock;
  log: Logger;
};

/** What a run is about: what is said with it, and after which entry what is answered stands. */
type Asked = {
  /** `message` and `results` are stored and answered; `nothing` follows what is being answered. */
  readonly what: "message" | "results" | "nothing";
  readonly seq: number;
  /** The agent that answers a message. Others of the session may answer what was said before it. */
  readonly agent?: string;
};

// Clients send all that they have of a conversation each time.
const maxInputBytes = 4 * 1024 * 1024;
const protocolVersion = "1.0";
/** As many as one call of a session takes. */
const maxResults = 100;
const maxReplyBytes = 64 * 1024 * 1024;

/**
 * Sessions as agents of AG-UI. The log says what was said, not the history that a client sends: of that the
 * newest message counts, or the results of calls after it, each stored once by its id. So a run that is
 * asked for again is followed where it is, or told again where it has ended.
 */
export function agUiRoutes(parts: AgUiParts): Route[] {
  const { sessions, members, quotas, streams, serializer, clock, log } = parts;

  const writing = <Result>(
    caller: Caller,
    sessionId: string,
    id: string,
    act: () => Promise<Result>,
  ): Promise<Result> => whileAdmitted(quotas?.write(caller, sessionId, { begins: true, id }), act);

  /** Checks that the caller is a member, and makes the session where there is none. */
  const open = async (caller: Caller, agent: string, sessionId: string) => {
    try {
      await members.check(caller, sessionId, { retries: true });
      // A caller that may use all sessions, and acts for no user, is checked by no read.
      await sessions.get(caller.tenant, sessionId, { withoutMetadata: true });
      return;
    } catch (error) {
      if (!hasCode(error, "not_found")) throw error;
    }
    requireVerb(caller, "sessions:create");
    checkNamed(caller, sessionId);
    const users = withCaller(caller, []);
    const create = () => sessions.create(caller.tenant, { sessionId, agents: [agent], users });
    checkCreated(caller, await whileAdmitted(quotas?.session(caller, sessionId), create));
    await members.check(caller, sessionId, { retries: true });
  };

  /** Stores what the run brings. What is stored already stays as it is. */
  const ask = async (caller: Caller, agent: string, input: RunAgentInput, trace: Traced) => {
    const { threadId: sessionId } = input;
    const { author } = messageFrom(caller, { parts: [] });
    const last = input.messages.findLastIndex(({ role }) => role === "user");
    const results = [...resultsIn(input.messages.slice(last + 1), input), ...decisionsIn(input)];
    if (results.length > 0) {
      let seq = 0;
      for (const [messageId, list] of byMessage(results)) {
        const id = `agui-${digestOf(input.runId, messageId)}`;
        const result = { id, author, messageId, results: list, ...trace };
        const send = () => sessions.toolResult(caller.tenant, sessionId, result);
        seq = Math.max(seq, (await writing(caller, sessionId, id, send)).seq);
      }
      return { what: "results", seq } as const;
    }
    const said = input.messages[last];
    if (!said) {
      const after = Number.MAX_SAFE_INTEGER;
      const end = await sessions.entries(caller.tenant, sessionId, { after, limit: 1 });
      return { what: "nothing", seq: end.lastSeq } as const;
    }
    const given = givenIn(input);
    const message = {
      ...messageFrom(caller, { id: said.id, parts: partsOf(said), to: agent }),
      ...(given && { metadata: { agUi: given } }),
      ...trace,
    };
    const send = () => sessions.send(caller.tenant, sessionId, message);
    const { seq } = await writing(caller, sessionId, said.id, send);
    return { what: "message", seq, agent } as const;
  };

  return [
    route(agUiSpecs.run, { maxBytes: maxInputBytes }).to(
      async ({ caller: authenticated, params: { agent }, body, context }) => {
        const caller = forItsUser(authenticated);
        const input = await body();
        const { threadId: sessionId } = input;
        const from = placeOf(context.req.header("last-event-id"));
        await open(caller, agent, sessionId);
        const brought = await ask(caller, agent, input, traceFrom(caller, traceOf(context)));
        const asked = from ? resumed(brought, from) : brought;
        const isOwn = await members.isMember(caller, sessionId);
        const stream = streams.open(context, (to) => {
          const run = createRun(input, asked, to, from);
          if (from?.isOver) {
            to.end();
            return () => {};
          }
          const shown = serializer.feed({ caller, isOwn });
          const fail = (error: unknown) => run.fail(frameErrorOf(error, log));
          const membership = watchMembership({
            members,
            clock,
            caller: () => caller,
            sessionId,
            isOwn: () => isOwn,
            onRemoved: fail,
          });
          const joined = sessions.join(
            caller.tenant,
            sessionId,
            { lastSeq: asked.seq },
            {
              push(event) {
                if (event.type === "joined" || event.type === "deleted") return run.push(event);
                membership.recheck();
                const left = shown(event);
                return left ? run.push(left) : true;
              },
              fail,
              drained: to.drained,
            },
          );
          joined.ready.catch(() => {});
          return () => {
            membership.stop();
            joined.leave();
          };
        });
        return { status: 200, body: stream, headers: unbuffered };
      },
    ),
  ];
}

/**
 * A program that names a user passes on what that user's page asks for, the session too. So it may do in
 * sessions what the user may, whatever its key allows besides.
 */
function forItsUser(caller: Caller): Caller {
  const isActing = caller.kind !== "user" && caller.user !== undefined;
  return isActing ? { ...caller, isOnlyForUser: true } : caller;
}

/** Where a client was cut off. */
function placeOf(header: string | undefined): RunPlace | undefined {
  const place = header ? runPlaceIn(header) : undefined;
  if (place || !header) return place;
  const message = "Last-Event-ID must be the id of an event of this run";
  throw new FlotillaError("invalid_input", message);
}

/** What a run was about that is gone on with. Where nothing was brought, the log has grown since. */
function resumed(asked: Asked, { seq }: RunPlace): Asked {
  const isSame = asked.what === "nothing" ? seq <= asked.seq : seq === asked.seq;
  if (isSame) return { ...asked, seq };
  const message = "the session's log isn't the one of this run: ask again without Last-Event-ID";
  throw new FlotillaError("conflict", message);
}

type Traced = { readonly trace?: TraceHeaders };

/** Tells a client what a session says, from what the run brought to the end of its answer. */
function createRun(
  input: RunAgentInput,
  { what, seq, agent }: Asked,
  to: EventWriter,
  from?: RunPlace,
) {
  const { threadId, runId } = input;
  let state: SessionState = { state: "idle" };
  let lastSeq = 0;
  let reached = seq;
  let final: Entry | undefined;
  let isOver = false;
  let assembler: Assembler | undefined;
  /** False when the client reads too slowly and was cut off. */
  let isRead = true;

  const isAsked = (name: string) => agent === undefined || name === agent;
  const send = (event: AgUiEvent, place: Partial<RunPlace> = {}) => {
    const id = runPlaceText({ seq, isOver, ...place });
    isRead = to.write({ data: JSON.stringify(event), ...(id !== undefined && { id }) });
  };
  const openAnswer = (messageId: string, told?: AnswerPlace) => {
    const tell: Tell = (event, next) => send(event, { isOver: false, answer: next });
    return { messageId, teller: createAnswerTeller(messageId, tell, told) };
  };
  let answer = from?.answer && openAnswer(from.answer.messageId, from.answer);
  const end = (event: AgUiEvent) => {
    if (isOver) return;
    isOver = true;
    answer?.teller.close();
    send(event);
    to.end();
  };
  const fail = ({ code, message }: { code: string; message: string }) =>
    end({ type: "RUN_ERROR", message, code });

  /** Has the client forget what it has of the answer: of an earlier run, or of an attempt that said else. */
  const forget = (messageId: string): AgUiEvent => {
    const isOf = ({ id }: AgUiMessage) => isOfAnswer(id, messageId);
    const calls = input.messages.filter(isOf).flatMap(({ toolCalls = [] }) => toolCalls);
    const callIds = new Set(calls.map(({ id }) => id));
    const messages = input.messages.filter(
      (each) => !isOf(each) && !(each.role === "tool" && callIds.has(each.toolCallId ?? "")),
    );
    return { type: "MESSAGES_SNAPSHOT", messages };
  };
  const tell = (
    messageId: string,
    parts: readonly Part[],
    how: { grew: boolean; whole: boolean },
  ): boolean => {
    if (answer?.messageId !== messageId) {
      // A turn that was replaced by another.
      if (answer) {
        answer.teller.close();
        send(forget(answer.messageId));
      }
      if (input.messages.some(({ id }) => isOfAnswer(id, messageId))) send(forget(messageId));
      answer = openAnswer(messageId);
    }
    if (answer.teller.advance(parts, how)) return isRead;
    answer.teller.close();
    send(forget(messageId));
    answer = openAnswer(messageId);
    answer.teller.advance(parts, { ...how, grew: false });
    return isRead;
  };

  const settle = () => {
    if (isOver || reached < lastSeq) return;
    if (final) {
      if (isTurn(state) && state.messageId === final.messageId) return;
      if (final.outcome !== "failed" && final.outcome !== "cut") {
        const { messageId, parts } = final;
        tell(messageId, parts, { grew: false, whole: true });
        return end(finishedBy(final, { threadId, runId }));
      }
      const { code, message } = final.error ?? { code: "failed", message: "the agent failed" };
      return fail({ code, message });
    }
    if (what === "message" || state.state !== "idle") return;
    // Nothing is being answered.
    if (what === "nothing") return end({ type: "RUN_FINISHED", threadId, runId });
    const message = "other calls of the message wait still: answer all of them in one run";
    fail({ code: "conflict", message });
  };

  const takeChunks = (chunks: readonly Chunk[], { isAnew }: { isAnew: boolean }): boolean => {
    // What is said now may answer what was said before this run.
    if (!isTurn(state) || state.upToSeq < seq || (final && final.messageId !== state.messageId))
      return true;
    if (!isAsked(state.agent)) return true;
    const { messageId } = state;
    if (isAnew) assembler = createAssembler({ messageId, maxBytes: maxReplyBytes });
    if (!assembler) return true;
    // The entry that follows has all of it.
    for (const chunk of chunks) assembler.push(chunk);
    // Of an input that isn't whole nothing is told, and reading it would cost its whole length each time.
    if (!isAnew && chunks.every(({ type }) => type === "tool-input-delta")) return true;
    return tell(messageId, assembler.message().parts, { grew: !isAnew, whole: false });
  };

  if (!from) send({ type: "RUN_STARTED", threadId, runId, protocolVersion });
  return {
    fail,
    push(event: FeedEvent): boolean {
      if (isOver) return false;
      switch (event.type) {
        case "joined":
          ({ state, lastSeq } = event);
          break;
        case "entries":
          for (const entry of event.entries) {
            reached = entry.seq;
            if (!isAnswerTo(seq, entry) || !isAsked(entry.author)) continue;
            if (!final || final.messageId === entry.messageId) final = entry;
          }
          break;
        case "state":
          ({ state } = event);
          break;
        case "chunks":
          return takeChunks(event.chunks, { isAnew: event.index === 0 });
        case "deleted":
          fail({ code: "not_found", message: "the session was deleted" });
          break;
        case "reset":
          fail({ code: "conflict", message: "the session's log was replaced: ask again" });
      }
      settle();
      return !isOver;
    },
  };
}

function isAnswerTo(seq: number, { kind, role, outcome, upToSeq }: Entry): boolean {
  const isAnswer = kind === "message" && role === "assistant" && outcome !== undefined;
  return isAnswer && (upToSeq === undefined || upToSeq >= seq);
}

function finishedBy(
  { messageId, outcome, parts }: Entry,
  run: { threadId: string; runId: string },
) {
  const type = "RUN_FINISHED";
  if (outcome === "stopped") return { type, ...run, outcome: { type: "cancelled" } };
  const interrupts = parts.flatMap((part) => {
    const { approval, toolCallId, state } = part;
    if (state !== "approval-requested" || !isJsonObject(approval)) return [];
    const id = [messageId, toolCallId, approval["id"]].map(wordOf).join("/");
    const message = approval["requestReason"];
    const asked = typeof message === "string" ? { message } : {};
    return [{ id, reason: "tool_call", toolCallId, ...asked, responseSchema: decisionSchema }];
  });
  if (interrupts.length > 0) return { type, ...run, outcome: { type: "interrupt", interrupts } };
  const pending = parts.filter(
    (part) => part["state"] === "input-available" && !isWaitingCall(part),
  );
  const pendingToolCallIds = pending.map(({ toolCallId }) => toolCallId);
  return {
    type,
    ...run,
    outcome: { type: "success", ...(pending.length > 0 && { pendingToolCallIds }) },
  };
}

const decisionSchema = {
  type: "object",
  properties: { approved: { type: "boolean" }, reason: { type: "string" } },
  required: ["approved"],
};

type Result = { readonly messageId: string; readonly result: ToolResult };

/** Results of calls that the client has run. Those of agents came from here, and say so by their ids. */
function resultsIn(messages: readonly AgUiMessage[], input: RunAgentInput): Result[] {
  const byClient = messages.filter(({ role, id }) => role === "tool" && !/#\d+-result$/.test(id));
  if (byClient.length > maxResults) {
    const message = `a run brings up to ${maxResults} results of calls`;
    throw new FlotillaError("invalid_input", message);
  }
  // Of calls with the same id, the last one is meant.
  const callers = new Map<string, string>();
  if (byClient.length > 0)
    for (const { id, toolCalls = [] } of input.messages)
      for (const call of toolCalls) callers.set(call.id, id);
  return byClient.map(({ toolCallId = "", content, error }) => {
    const caller = callers.get(toolCallId);
    if (caller === undefined) {
      const message = `there is no message with the call ${JSON.stringify(toolCallId.slice(0, 80))}`;
      throw new FlotillaError("invalid_input", message);
    }
    const messageId = answerOf(caller);
    if (error !== undefined) return { messageId, result: { toolCallId, errorText: error } };
    return { messageId, result: { toolCallId, output: outputOf(content) } };
  });
}

/** Decisions about calls that wait for approval. */
function decisionsIn({ resume = [] }: RunAgentInput): Result[] {
  return resume.map(({ interruptId, status, payload }) => {
    const [messageId, toolCallId, approvalId, ...more] = interruptId.split("/").map(unwordOf);
    const decision = isJsonObject(payload) ? payload["approved"] : payload;
    if (!messageId || !toolCallId || !approvalId || more.length > 0)
      throw new FlotillaError("invalid_input", "an interruptId isn't one of this server");
    if (status === "resolved" && typeof decision !== "boolean") {
      const message = 'a resolved interrupt needs a payload such as { "approved": true }';
      throw new FlotillaError("invalid_input", message);
    }
    const reason = isJsonObject(payload) ? payload["reason"] : undefined;
    const approved = status === "resolved" && decision === true;
    const why = typeof reason === "string" ? { reason } : {};
    return { messageId, result: { toolCallId, approvalId, approved, ...why } };
  });
}

function byMessage(results: readonly Result[]): Map<string, ToolResult[]> {
  const lists = new Map<string, ToolResult[]>();
  for (const { messageId, result } of results)
    lists.set(messageId, [...(lists.get(messageId) ?? []), result]);
  return lists;
}

/** Text that is JSON is what it says, so that agents get what a tool returned. */
function outputOf(content: unknown): Json {
  if (typeof content !== "string") return (content ?? null) as Json;
  try {
    return JSON.parse(content) as Json;
  } catch {
    return content;
  }
}

function partsOf({ content }: AgUiMessage): readonly Part[] {
  const said = validate("content", agUiContent, content, "body");
  if (typeof said === "string") return [{ type: "text", text: said }];
  return said.map((part) => {
    if (part.type === "text") return { type: "text", text: part.text };
    const { type, value, mimeType = defaultTypes[part.type] } = part.source;
    if (type === "file")
      throw new FlotillaError("unsupported", "files of a provider can't be read here");
    const url = type === "data" ? `data:${mimeType};base64,${value}` : value;
    return { type: "file", mediaType: mimeType, url };
  });
}

const defaultTypes = {
  image: "image/*",
  audio: "audio/*",
  video: "video/*",
  document: "application/octet-stream",
};

/** What else a client gives its agent with a run. */
function givenIn({ tools, context, state, forwardedProps }: RunAgentInput) {
  const given = { tools, context, state, forwardedProps };
  const isEmpty = (value: unknown) =>
    value == null || (typeof value === "object" && Object.keys(value).length === 0);
  const left = Object.entries(given).filter(([, value]) => !isEmpty(value));
  return left.length > 0 ? (Object.fromEntries(left) as { [key: string]: Json }) : undefined;
}

function digestOf(...words: readonly string[]): string {
  return createHash("sha256").update(JSON.stringify(words)).digest("hex").slice(0, 40);
}

function wordOf(value: unknown): string {
  return encodeURIComponent(String(value));
}

function unwordOf(word: string): string {
  try {
    return decodeURIComponent(word);
  } catch {
    return "";
  }
}
