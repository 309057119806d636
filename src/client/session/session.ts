import type { FlotillaError } from "../../base/errors.ts";
import type { Json } from "../../base/json.ts";
import type { Chunk } from "../../protocol/chunk.ts";
import type { Entry, Part, SessionState, ToolResult, UIMessage } from "../../protocol/message.ts";
import type { Waiting } from "../../protocol/waiting.ts";
import type { Store } from "../observable.ts";
import type { SessionPresence } from "./presence.ts";

/**
 * One session, followed while there are listeners: over any connection, from its position. A message is
 * sent again with the same id until it is acked or refused.
 */
export type Session = Store<SessionSnapshot> & {
  readonly sessionId: string;
  readonly presence: SessionPresence;
  /**
   * Calls back with every event, and follows the session until the returned function is called. A late
   * listener first gets the known events: `joined`, every entry in order, and the chunks of the current
   * answer from the start. A session that is gone is joined again.
   */
  on(listener: (event: SessionEvent) => void): () => void;
  /** The same events to iterate over. A reader that is too slow gets `overloaded`. */
  events(options?: SessionEventsOptions): AsyncIterableIterator<SessionEvent>;
  /** Resolves once it is stored. */
  send(message: string | readonly Part[], options?: SendOptions): Promise<Sent>;
  /** Ends the answer that is being made; resolves to whether there was one. */
  stop(options?: StopOptions): Promise<boolean>;
  /** Regenerates an answer. Default: the last one. */
  regenerate(options?: RegenerateOptions): Promise<{ readonly seq?: number }>;
  toolResult(
    messageId: string,
    results: readonly ToolResult[],
    options?: ToolResultOptions,
  ): Promise<{ readonly seq: number }>;
  /**
   * Gives the payload to the tool call that waits for this signal. Refused if nothing waits for it, or if
   * its schema refuses the payload.
   */
  signal(
    name: string,
    payload?: Json,
    options?: SessionSignalOptions,
  ): Promise<{ readonly seq: number }>;
  /** Marks the session as read by the user up to an entry. Default: the last one. */
  read(seq?: number): Promise<void>;
};

export type SessionEventsOptions = {
  signal?: AbortSignal;
  /** Only entries after this one. Default 0: all. */
  after?: number;
};

export type SendOptions = {
  /** The message's id. Sending the same id again stores nothing new. Default: a fresh one. */
  id?: string;
  metadata?: Json;
  /** The agent that answers, where there are several. */
  to?: string;
  /** Ends the wait, and removes the message where it wasn't sent. A sent one may still be stored. */
  signal?: AbortSignal;
};

export type Sent = {
  readonly seq: number;
  readonly messageId: string;
  /** It was stored before with the same id. */
  readonly duplicate: boolean;
};

export type StopOptions = {
  /** Only this turn. Default: the current one. */
  epoch?: number;
};

export type RegenerateOptions = { messageId?: string; id?: string };

export type ToolResultOptions = { id?: string };

export type SessionSignalOptions = {
  /** Sending the same id again does nothing. Default: a fresh one. */
  id?: string;
};

export type SessionSnapshot = {
  /**
   * `idle`: not followed. `joining`: history is arriving. `live`: followed, with all of its history.
   * `away`: followed, but the connection is lost. `gone`: deleted, removed, or refused.
   */
  readonly status: "idle" | "joining" | "live" | "away" | "gone";
  /**
   * The messages to show: stored ones (a regenerated or continued one in its place), then the answer
   * that is being made, then messages sent here that aren't acked yet. Unchanged messages are the same
   * objects.
   */
  readonly messages: readonly UIMessage[];
  /** The answer that is being made, once it has begun. Also in `messages`. */
  readonly answer?: LiveAnswer;
  /** The turn's position in the queue, while it waits for a permit of its agent's throttle. */
  readonly waiting?: Waiting;
  /** Messages sent here that aren't known to be stored yet, or were refused. */
  readonly unsent: readonly Unsent[];
  readonly state: SessionState;
  /** The last entry that the client has. */
  readonly lastSeq: number;
  readonly incarnation?: string;
  /** Why it is `gone`. */
  readonly error?: FlotillaError;
};

export type LiveAnswer = {
  readonly messageId: string;
  readonly epoch: number;
  readonly attempt: number;
  readonly message: UIMessage;
};

export type Unsent = {
  readonly id: string;
  readonly parts: readonly Part[];
  readonly metadata?: Json;
  /** Why it was refused. It stays until the same id is sent again. */
  readonly error?: FlotillaError;
};

/** An event of a session. Gaps, duplicates and stale events are already removed. */
export type SessionEvent =
  | { readonly type: "joined"; readonly lastSeq: number; readonly state: SessionState }
  /** The known entries are void; the log follows from its first entry. */
  | { readonly type: "reset"; readonly reason: "ahead" | "incarnation" | "mismatch" }
  /** Exactly 1…n, each once, in order. */
  | { readonly type: "entry"; readonly entry: Entry }
  | { readonly type: "state"; readonly state: SessionState }
  | {
      readonly type: "chunks";
      readonly epoch: number;
      readonly attempt: number;
      /** The known part of the answer is void: these chunks begin it, from `start`. */
      readonly fromStart: boolean;
      readonly chunks: readonly Chunk[];
    }
  /** The connection is lost, and the client reconnects. */
  | { readonly type: "away" }
  | { readonly type: "gone"; readonly error: FlotillaError };
