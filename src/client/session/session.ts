import type { FlotillaError } from "../../base/errors.ts";
import type { Json } from "../../base/json.ts";
import type { Chunk } from "../../protocol/chunk.ts";
import type { Entry, Part, SessionState, ToolResult, UIMessage } from "../../protocol/message.ts";
import type { Waiting } from "../../protocol/waiting.ts";
import type { Store } from "../observable.ts";

/**
 * One session, followed while somebody listens: over whichever connection there is, from the place
 * that it has. What is sent is sent again, with the same id, until it is acked or refused.
 */
export type Session = Store<SessionSnapshot> & {
  readonly sessionId: string;
  /**
   * Everything as it comes, for those who build something else of it. Follows while it listens. Who
   * listens later than others hears at once what they know: `joined`, every entry in order, and of an
   * answer that is being made its chunks from the start. A session that is gone is joined anew.
   */
  on(listener: (event: SessionEvent) => void): () => void;
  /** The same to iterate over. A reader that is too slow gets `overloaded`, not endless memory. */
  events(options?: SessionEventsOptions): AsyncIterableIterator<SessionEvent>;
  /** Resolves once it is stored. */
  send(message: string | readonly Part[], options?: SendOptions): Promise<Sent>;
  /** Ends the answer that is being made; whether there was one. */
  stop(options?: StopOptions): Promise<boolean>;
  /** Has an answer made anew, the last one unless told. */
  regenerate(options?: RegenerateOptions): Promise<{ readonly seq?: number }>;
  toolResult(
    messageId: string,
    results: readonly ToolResult[],
    options?: ToolResultOptions,
  ): Promise<{ readonly seq: number }>;
  /** Says up to where the user has read. Default: everything that is shown. */
  read(seq?: number): Promise<void>;
};

export type SessionEventsOptions = {
  signal?: AbortSignal;
  /** Only entries behind this place. Default 0: all. */
  after?: number;
};

export type SendOptions = {
  /** Of the message. Sending the same id again stores nothing new. Default: a fresh one. */
  id?: string;
  metadata?: Json;
  /** The agent that is asked, where there are several. */
  to?: string;
  /** Gives up waiting, and sending if it hasn't gone out. What was sent may be stored all the same. */
  signal?: AbortSignal;
};

export type Sent = {
  readonly seq: number;
  readonly messageId: string;
  /** It was stored before, under the same id. */
  readonly duplicate: boolean;
};

export type StopOptions = {
  /** Only this turn. Default: whatever runs. */
  epoch?: number;
};

export type RegenerateOptions = { messageId?: string; id?: string };

export type ToolResultOptions = { id?: string };

export type SessionSnapshot = {
  /**
   * `idle`: not followed. `joining`: history is on its way. `live`: all of it is here, and it is
   * followed. `away`: followed, but the connection is lost. `gone`: deleted, removed, refused.
   */
  readonly status: "idle" | "joining" | "live" | "away" | "gone";
  /**
   * What is shown: stored messages, in their places those that are made anew or continued, behind them
   * the answer that is being made, then what was sent here and isn't acked yet. Messages that haven't
   * changed are the same objects.
   */
  readonly messages: readonly UIMessage[];
  /** The answer that is being made, if something of it is known. Also in `messages`. */
  readonly answer?: LiveAnswer;
  /** Where the turn stands that is to make it, while it waits for a permit of its agent's throttle. */
  readonly waiting?: Waiting;
  /** What was sent here and isn't stored yet as far as is known, or was refused. */
  readonly unsent: readonly Unsent[];
  readonly state: SessionState;
  /** The last entry that is here. */
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

/** What happens in a session. Gaps, doubles and what is stale are taken out already. */
export type SessionEvent =
  | { readonly type: "joined"; readonly lastSeq: number; readonly state: SessionState }
  /** What was known of the session is void; its entries follow from the first. */
  | { readonly type: "reset"; readonly reason: "ahead" | "incarnation" | "mismatch" }
  /** Exactly 1…n, each once, in order. */
  | { readonly type: "entry"; readonly entry: Entry }
  | { readonly type: "state"; readonly state: SessionState }
  | {
      readonly type: "chunks";
      readonly epoch: number;
      readonly attempt: number;
      /** What was known of the answer is void: these begin it, from `start`. */
      readonly fromStart: boolean;
      readonly chunks: readonly Chunk[];
    }
  /** The connection is lost, and being made again. */
  | { readonly type: "away" }
  | { readonly type: "gone"; readonly error: FlotillaError };
