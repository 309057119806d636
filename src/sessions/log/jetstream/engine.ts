/**
 * What is used of JetStream. The log knows no more of it, so that a simulated one can stand in its place.
 * A publish never rejects: whatever isn't an answer that says what happened is `silent`. Everything else
 * rejects with `store_unavailable` if it can't be answered now.
 */
export type StreamEngine = {
  /** Stores a message if its condition holds. Sends once, and never again. */
  publish(message: NewMessage, condition: PublishCondition): Promise<PublishAnswer>;
  /**
   * The message with this sequence. One that is found is committed, whichever replica answers. Undefined
   * proves nothing: the replica may be behind.
   */
  read(stream: string, sequence: number): Promise<StoredMessage | undefined>;
  /** The last message on a subject, as one replica knows it. */
  lastOn(stream: string, subject: string): Promise<StoredMessage | undefined>;
  /** Messages `from` to `to`, in order. May end before `to`: the caller counts. */
  readFrom(stream: string, range: { from: number; to: number }): AsyncIterable<StoredMessage>;
  /** What the stream's leader says of it, which may have been deposed. Undefined: there is no such stream. */
  state(stream: string): Promise<StreamState | undefined>;
  /** Makes a stream. One that is there with the same settings counts as made. */
  create(settings: StreamSettings): Promise<CreateAnswer>;
  /** Forgets messages below a sequence. The last sequence stays. */
  purge(stream: string, below: number): Promise<void>;
  facts(): Promise<ServerFacts>;
  close(): Promise<void>;
};

export type NewMessage = {
  readonly subject: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Uint8Array;
};

export type StoredMessage = NewMessage & { readonly sequence: number };

export type PublishCondition = {
  readonly stream: string;
  /** The sequence that the stream's last message must have, or the last one `of` the message's subject. */
  readonly lastSequence: number;
  readonly of?: "subject";
  /** How long to wait for the answer. */
  readonly limitMs: number;
};

export type PublishAnswer =
  | { readonly type: "acked"; readonly stream: string; readonly sequence: number }
  /** *Wrong last sequence*, and the sequence that the answer names. */
  | { readonly type: "wrong_last"; readonly lastSequence: number }
  /** The stream has reached `max_bytes`. */
  | { readonly type: "full" }
  | { readonly type: "too_large" }
  /** No answer, no responders, a cut connection, or an error that says nothing about the message. */
  | {
      readonly type: "silent";
      readonly why: string;
      /** What the user of these servers may not do, such as `publish to x`, if that is why. */
      readonly mayNot?: string;
    };

export type StreamState = {
  readonly settings: StreamSettings;
  /** The first message that is there; one above `lastSequence` if there is none. */
  readonly firstSequence: number;
  readonly lastSequence: number;
  readonly bytes: number;
  /** What its leader says of the servers that have a copy. Empty: the stream is on one server. */
  readonly copies: readonly StreamCopy[];
};

export type StreamCopy = {
  readonly server: string;
  readonly state: "current" | "behind" | "offline";
};

/** The settings of a stream, as far as Flotilla depends on them. */
export type StreamSettings = {
  readonly name: string;
  readonly subjects: readonly string[];
  readonly storage: "file" | "memory";
  readonly replicas: number;
  readonly discard: "new" | "old";
  /** -1: no limit. */
  readonly maxBytes: number;
  /** -1: no limit. */
  readonly maxMessages: number;
  /** -1: no limit. */
  readonly maxPerSubject: number;
  /** 0: messages never expire. */
  readonly maxAgeMs: number;
  /** The sequence of the first message that was ever stored. */
  readonly firstSequence: number;
  readonly allowDirect: boolean;
  readonly denyDelete: boolean;
  readonly isCompressed: boolean;
  /** Whether the stream copies another or is sealed, which the log can't live with. */
  readonly isForeign: boolean;
  readonly metadata: Readonly<Record<string, string>>;
};

export type CreateAnswer =
  | { readonly type: "made" }
  | { readonly type: "different" }
  | { readonly type: "refused"; readonly code: number; readonly why: string };

/** What is known of the servers when a pod starts. */
export type ServerFacts = {
  readonly version: string;
  readonly hasJetStream: boolean;
  readonly maxPayloadBytes: number;
  /** Whether acks wait for a flush, as each monitoring address says. Empty: none was given. */
  readonly flushes: readonly boolean[];
  /** The version of each server with a monitoring address. */
  readonly versions: readonly string[];
  /** Of each monitoring address that doesn't answer: what is wrong there. */
  readonly silent: readonly string[];
};
