import {
  type UIMessage as ChatMessage,
  type ChatTransport,
  type UIMessageChunk,
  uiMessageChunkSchema,
} from "ai";
import { type Clock, sleep, systemClock } from "../../base/clock.ts";
import { FlotillaError, hasCode } from "../../base/errors.ts";
import type { Json } from "../../base/json.ts";
import { fraction, type Random, systemRandom } from "../../base/random.ts";
import { isTurn, type UIMessage } from "../../protocol/message.ts";
import { jitteredMs } from "../backoff.ts";
import { type Client, createClient } from "../client.ts";
import type { ClientOptions } from "../options.ts";
import type { Session, SessionSnapshot } from "../session/session.ts";
import { transientCodePattern } from "../socket/send-queue.ts";
import {
  regenerationOf,
  answerOfTurn,
  type AnswerOptions,
  answerTo,
  type EventBuffer,
  bufferEvents,
  continuationOf,
  streamAnswer,
} from "./answer.ts";
import { type ChatLike, createChatSyncs } from "./sync.ts";
import { decisionsIn, toolResultId, isEqual } from "./tool-decisions.ts";

export type ChatTransportOptions = ClientOptions & {
  /** Default: a client of its own, created from the other options. */
  client?: Client;
  /** The agents of new chats: the first message creates their sessions. */
  agent?: string | readonly string[];
  /**
   * The `uiMessageChunkSchema` of the AI SDK that reads the chat, where several releases are installed.
   * Default: that of the one that this package finds.
   */
  chunkSchema?: unknown;
};

/** The `transport` of `useChat`. A chat's id is the id of its session. */
export type FlotillaTransport<Message extends ChatMessage = ChatMessage> =
  ChatTransport<Message> & {
    readonly resumeStreamIsReplay: true;
    readonly client: Client;
    session(chatId: string): Session;
    /** Ends the answer that is being made, for all its readers. Detaching doesn't. */
    stop(chatId: string): Promise<boolean>;
    /**
     * Keeps a chat in sync with its session until the returned function is called: its history, messages
     * of others, and answers that others requested.
     */
    follow(chat: ChatLike<Message>): () => void;
    /** Closes the client, unless it was passed as an option. */
    close(): void;
  };

type SendOptions<Message extends ChatMessage> = Parameters<
  ChatTransport<Message>["sendMessages"]
>[0];

type Signal = AbortSignal | undefined;
type AnswerRequest = Pick<AnswerOptions, "target" | "initial">;

type NewSessionOptions = {
  sessionId: string;
  agents: readonly string[];
  clock: Clock;
  random: Random;
  signal: AbortSignal | undefined;
};

/**
 * Connects `useChat` to a session: a message is stored before it is answered, the answer goes on without
 * a reader, and every tab and connection shows the same.
 */
export function createChatTransport<Message extends ChatMessage = ChatMessage>(
  options: ChatTransportOptions = {},
): FlotillaTransport<Message> {
  const { client: provided, agent, chunkSchema = uiMessageChunkSchema, ...clientOptions } = options;
  const client = provided ?? createClient(clientOptions);
  const { clock = systemClock, random = systemRandom } = options;
  const chatSyncs = createChatSyncs<Message>((chatId) => client.session(chatId), clock);
  const created = new Set<string>();
  let takesReset = false;
  void takesChunk(chunkSchema, { type: "reset-step" }).then((takes) => (takesReset = takes));

  /** A new chat has no session until its first message. */
  const ensureSession = async (chatId: string, signal: Signal): Promise<void> => {
    if (agent === undefined || created.has(chatId)) return;
    if (client.session(chatId).get().status !== "live") {
      const agents = typeof agent === "string" ? [agent] : agent;
      await createSession(client, { sessionId: chatId, agents, clock, random, signal });
    }
    created.add(chatId);
  };

  const stream = (
    chatId: string,
    events: EventBuffer,
    options: Pick<AnswerOptions, "target" | "initial" | "signal">,
  ): ReadableStream<UIMessageChunk> => {
    const isSynced = () => chatSyncs.has(chatId);
    const onEnd: AnswerOptions["onEnd"] = (end) => chatSyncs.answerEnded(chatId, end);
    return streamAnswer(events, {
      ...options,
      isSynced,
      takesReset: () => takesReset,
      onEnd,
      clock,
    }) as ReadableStream<never>;
  };

  const sendMessage = async (
    chatId: string,
    message: UIMessage,
    signal: Signal,
  ): Promise<AnswerRequest> => {
    const session = client.session(chatId);
    const metadata = ownMetadata(message.metadata);
    const sending = session.send(message.parts, {
      id: message.id,
      ...(metadata !== undefined && { metadata }),
      ...(signal && { signal }),
    });
    const { seq, duplicate } = await sending.catch((error: unknown) => {
      throw agent === undefined && hasCode(error, "not_found")
        ? noSessionError(chatId, error)
        : error;
    });
    if (duplicate) checkUnchanged(message, await whenLive(session, signal));
    return { target: answerTo(seq) };
  };

  const continueAnswer = async (
    chatId: string,
    message: UIMessage,
    signal: Signal,
  ): Promise<AnswerRequest> => {
    const session = client.session(chatId);
    const { messages, state, lastSeq } = await whenLive(session, signal);
    const { id: messageId } = message;
    const stored = messages.find(({ id }) => id === messageId);
    const results = decisionsIn(message, stored);
    let seq = lastSeq;
    if (results.length > 0) {
      ({ seq } = await session.toolResult(messageId, results, {
        id: toolResultId(messageId, results),
      }));
    } else if (!isTurn(state) || state.messageId !== messageId) {
      throw new FlotillaError(
        "invalid_input",
        "nothing to continue: no tool call of the last answer has an output or an approval",
      );
    }
    return { initial: message, target: continuationOf(messageId, seq) };
  };

  const regenerate = async (
    chatId: string,
    named: string | undefined,
    signal: Signal,
  ): Promise<AnswerRequest> => {
    const session = client.session(chatId);
    const { messages, lastSeq } = await whenLive(session, signal);
    const target = answerAt(messages, named);
    await session.regenerate({ messageId: target.id });
    return { target: regenerationOf(target.id, lastSeq) };
  };

  /** Subscribes first, then requests. */
  const streamOf = async (
    chatId: string,
    signal: Signal,
    request: () => Promise<AnswerRequest>,
  ): Promise<ReadableStream<UIMessageChunk>> => {
    const events = bufferEvents(client.session(chatId));
    try {
      return stream(chatId, events, { ...(await unlessAborted(request(), signal)), signal });
    } catch (error) {
      events.leave();
      throw error;
    }
  };

  return {
    client,
    resumeStreamIsReplay: true,
    session: (chatId) => client.session(chatId),
    stop: (chatId) => client.session(chatId).stop(),
    follow: (chat) => chatSyncs.follow(chat),
    close() {
      if (!provided) client.close();
    },
    async sendMessages({
      trigger,
      chatId,
      messageId,
      messages,
      abortSignal,
    }: SendOptions<Message>) {
      if (trigger === "regenerate-message") {
        return streamOf(chatId, abortSignal, () => regenerate(chatId, messageId, abortSignal));
      }
      const named = messages.find(({ id }) => id === messageId);
      const message = named?.role === "assistant" ? named : messages.at(-1);
      if (!message) throw new FlotillaError("invalid_input", "there is no message to send");
      const plain = message as unknown as UIMessage;
      const request = message.role === "assistant" ? continueAnswer : sendMessage;
      if (request === sendMessage)
        await unlessAborted(ensureSession(chatId, abortSignal), abortSignal);
      return streamOf(chatId, abortSignal, () => request(chatId, plain, abortSignal));
    },
    async reconnectToStream({ chatId, abortSignal }) {
      const session = client.session(chatId);
      const { status, state } = await whenLive(session, abortSignal, { orGone: true });
      if (status !== "live" || !isTurn(state)) return null;
      const target = answerOfTurn(state.epoch);
      return stream(chatId, bufferEvents(session), { target, signal: abortSignal });
    },
  };
}

/** Whether the AI SDK knows such a chunk: one that it doesn't know is passed over without a word. */
async function takesChunk(schema: unknown, chunk: { readonly type: string }): Promise<boolean> {
  try {
    const found = (typeof schema === "function" ? schema() : schema) as {
      validate?(value: unknown): PromiseLike<{ readonly success?: unknown }>;
    };
    return (await found.validate?.(chunk))?.success === true;
  } catch {
    return false;
  }
}

function noSessionError(chatId: string, cause: unknown): FlotillaError {
  const message =
    `there is no session ${chatId}: set \`agent\` of the transport to create it with the first ` +
    "message, or call `client.sessions.create`";
  return new FlotillaError("not_found", message, { cause });
}

/** A log never changes: an edited message with a stored id would be dropped as a duplicate. */
function checkUnchanged(message: UIMessage, { messages }: SessionSnapshot): void {
  const stored = messages.find(({ id }) => id === message.id);
  if (!stored || isEqual(stored.parts, message.parts)) return;
  throw new FlotillaError(
    "conflict",
    "a stored message can't be changed: send the correction as a new one",
  );
}

/** The answer to regenerate: the named one, the one after the named question, or the last. */
function answerAt(messages: readonly UIMessage[], named: string | undefined): UIMessage {
  const at = named === undefined ? -1 : messages.findIndex(({ id }) => id === named);
  const isAnswer = ({ role }: UIMessage) => role === "assistant";
  const answer = at === -1 ? messages.findLast(isAnswer) : messages.slice(at).find(isAnswer);
  if (answer) return answer;
  throw new FlotillaError("not_found", "there is no answer to regenerate yet");
}

/** Without the metadata that Flotilla adds. */
function ownMetadata(metadata: unknown): Json | undefined {
  if (typeof metadata !== "object" || metadata === null || Array.isArray(metadata)) {
    return metadata as Json | undefined;
  }
  const { flotilla: _, ...own } = metadata as { readonly [name: string]: Json };
  return Object.keys(own).length === 0 ? undefined : own;
}

/**
 * Creates the session of a new chat. Waits for a connection, as messages do. With its id a session is
 * created once, however often the request is repeated.
 */
async function createSession(client: Client, options: NewSessionOptions): Promise<void> {
  const { sessionId, agents, clock, random, signal } = options;
  for (let failures = 1; ; failures++) {
    try {
      await client.sessions.create({ sessionId, agents });
      return;
    } catch (error) {
      if (!isTransient(error) || client.connection.get().status === "closed") throw error;
      const waitMs = (error.retryAfterMs ?? 0) + jitteredMs(failures, fraction(random));
      await sleep(clock, waitMs, signal);
    }
  }
}

/** Whether a retry may help: not where another program answers at that address. */
function isTransient(error: unknown): error is FlotillaError {
  if (!(error instanceof FlotillaError) || !transientCodePattern.test(error.code)) return false;
  const status = error.details?.["status"];
  return typeof status !== "number" || status >= 500;
}

/** Resolves once a session is live. Rejects where there is none, unless `orGone`. */
function whenLive(
  session: Session,
  signal: AbortSignal | undefined,
  { orGone = false } = {},
): Promise<SessionSnapshot> {
  return new Promise((resolve, reject) => {
    let leave: (() => void) | undefined;
    const end = (settle: () => void): void => {
      signal?.removeEventListener("abort", onAbort);
      settle();
      leave?.();
    };
    const onAbort = () => end(() => reject(abortError()));
    const check = (): void => {
      const snapshot = session.get();
      const { status, error } = snapshot;
      if (status === "live" || (status === "gone" && orGone)) end(() => resolve(snapshot));
      else if (status === "gone") end(() => reject(error ?? goneError(session)));
    };
    if (signal?.aborted) return reject(abortError());
    signal?.addEventListener("abort", onAbort, { once: true });
    leave = session.subscribe(check);
    check();
  });
}

/** The same promise, but a signal that fires first rejects it; the request may still be performed. */
function unlessAborted<T>(work: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  return new Promise((resolve, reject) => {
    const onAbort = () => reject(abortError());
    if (signal?.aborted) onAbort();
    signal?.addEventListener("abort", onAbort, { once: true });
    work.then(resolve, reject).finally(() => signal?.removeEventListener("abort", onAbort));
  });
}

/** By its name `useChat` recognises an abort, which is no failure. */
function abortError(): Error {
  return new DOMException("the wait was aborted", "AbortError");
}

function goneError({ sessionId }: Session): FlotillaError {
  return new FlotillaError("not_found", `there is no session ${sessionId}`);
}
