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
import { isTurn, type SessionView, type UIMessage } from "../../protocol/message.ts";
import { jitteredMs } from "../backoff.ts";
import { type Client, createClient, randomId } from "../client.ts";
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
import { createChatFiles } from "./files.ts";
import { type ChatLike, createChatSyncs } from "./sync.ts";
import { decisionsIn, toolResultId, isEqual } from "./tool-decisions.ts";

export type ChatTransportOptions = ClientOptions & {
  /** Default: a client of its own, created from the other options. */
  client?: Client;
  /** The agents of new chats: the first message creates their sessions. */
  agent?: string | readonly string[];
  /**
   * Called where a user has edited a stored message, by `sendMessage({ messageId, … })`: with the fork of the
   * chat in which the message was said anew. The page shows that one from now on. Without it, edits are refused.
   */
  onFork?: (fork: SessionView, chatId: string) => void;
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

type RetryOptions = { clock: Clock; random: Random; signal: Signal };

/**
 * Connects `useChat` to a session: a message is stored before it is answered, the answer goes on without
 * a reader, and every tab and connection shows the same.
 */
export function createChatTransport<Message extends ChatMessage = ChatMessage>(
  options: ChatTransportOptions = {},
): FlotillaTransport<Message> {
  const { client: provided, agent, onFork, ...rest } = options;
  const { chunkSchema = uiMessageChunkSchema, ...clientOptions } = rest;
  const client = provided ?? createClient(clientOptions);
  const { clock = systemClock, random = systemRandom } = options;
  const files = createChatFiles(client, clock);
  const chatSyncs = createChatSyncs<Message>((chatId) => client.session(chatId), files, clock);
  const created = new Set<string>();
  let takesReset = false;
  void takesChunk(chunkSchema, { type: "reset-step" }).then((takes) => (takesReset = takes));

  /** A new chat has no session until its first message. */
  const ensureSession = async (chatId: string, signal: Signal): Promise<void> => {
    if (agent === undefined || created.has(chatId)) return;
    if (client.session(chatId).get().status !== "live") {
      const agents = typeof agent === "string" ? [agent] : agent;
      const create = () => client.sessions.create({ sessionId: chatId, agents });
      await whenReachable(client, create, { clock, random, signal });
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

  /** A log never changes, so an edited message is said anew in a fork that ends before it. */
  const edit = async (
    chatId: string,
    { id: messageId, parts, metadata: given }: UIMessage,
    signal: Signal,
  ): Promise<undefined> => {
    if (!onFork) throw noEditError();
    const messageMetadata = ownMetadata(given);
    const sent = {
      id: randomId(random),
      ...(messageMetadata !== undefined && { messageMetadata }),
    };
    const say = () => client.sessions.edit(chatId, messageId, parts, sent);
    const { session } = await whenReachable(client, say, { clock, random, signal });
    if (!signal?.aborted) onFork(session, chatId);
  };

  /** Undefined for an edit, whose answer is that of a fork. */
  const sendMessage = async (
    chatId: string,
    given: UIMessage,
    signal: Signal,
  ): Promise<AnswerRequest | undefined> => {
    const session = client.session(chatId);
    const message = await files.stored(chatId, given);
    if (signal?.aborted) throw abortError();
    if (isEdited(message, session.get())) return edit(chatId, message, signal);
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
    // What is stored may not have been known here before.
    if (duplicate && isEdited(message, await whenLive(session, signal))) {
      return edit(chatId, message, signal);
    }
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
    request: () => Promise<AnswerRequest | undefined>,
  ): Promise<ReadableStream<UIMessageChunk>> => {
    const events = bufferEvents(client.session(chatId));
    try {
      const answer = await unlessAborted(request(), signal);
      if (answer) return stream(chatId, events, { ...answer, signal });
      events.leave();
      // `follow` shows again what this chat's own session has.
      chatSyncs.answerEnded(chatId, { type: "over" });
      return emptyStream();
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

function isEdited(message: UIMessage, { messages, unsent }: SessionSnapshot): boolean {
  if (unsent.some(({ id }) => id === message.id)) return false;
  const stored = messages.find(({ id }) => id === message.id);
  return stored !== undefined && !isEqual(stored.parts, message.parts);
}

function noEditError(): FlotillaError {
  return new FlotillaError(
    "conflict",
    "a stored message can't be changed: set `onFork` of the transport, and editing one forks the session before it",
  );
}

function emptyStream(): ReadableStream<never> {
  return new ReadableStream({ start: (controller) => controller.close() });
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
 * Waits for a connection, as messages do. What has an id from here is made once, however often the request is
 * repeated.
 */
async function whenReachable<Result>(
  client: Client,
  request: () => Promise<Result>,
  { clock, random, signal }: RetryOptions,
): Promise<Result> {
  for (let failures = 1; ; failures++) {
    try {
      return await request();
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
