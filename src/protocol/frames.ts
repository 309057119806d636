import type { ErrorCode } from "../base/errors.ts";
import type { Json } from "../base/json.ts";
import type { TraceHeaders } from "../base/trace-context.ts";
import type { Chunk } from "./chunk.ts";
import type { Entry, InboxItem, Part, SessionState, ToolResult } from "./message.ts";

/** The WebSocket subprotocol that client and server agree on. */
export const subprotocol = "flotilla.v1";

/** Chosen by the client, and returned with the response to the frame. */
export type Ref = string | number;

/** What a client sends: one frame per WebSocket message, or several as an array. */
export type ClientFrame = { readonly ref: Ref } & (
  | {
      readonly type: "join";
      readonly session: string;
      /** The last entry that the client has; 0 if it has none. */
      readonly lastSeq: number;
      readonly incarnation?: string;
      readonly lastMessageId?: string;
    }
  | { readonly type: "leave"; readonly session: string }
  | ({
      readonly type: "send";
      readonly session: string;
      readonly message: FrameMessage;
    } & FrameTrace)
  | ({
      readonly type: "tool_result";
      readonly session: string;
      readonly id?: string;
      readonly messageId: string;
      readonly results: readonly ToolResult[];
    } & FrameTrace)
  /** Gives the payload to the tool call that waits for the signal. */
  | ({
      readonly type: "signal";
      readonly session: string;
      readonly id?: string;
      readonly name: string;
      /** Default null. */
      readonly payload?: Json;
    } & FrameTrace)
  | ({
      readonly type: "regenerate";
      readonly session: string;
      readonly id?: string;
      readonly messageId?: string;
    } & FrameTrace)
  | { readonly type: "stop"; readonly session: string; readonly epoch?: number }
  | { readonly type: "read"; readonly session: string; readonly seq: number }
  /** Shows the user as one who has the session open, and follows who else has. The session must be joined. */
  | { readonly type: "presence"; readonly session: string; readonly typing: boolean }
  | { readonly type: "presence_leave"; readonly session: string }
  | { readonly type: "inbox" }
  | { readonly type: "inbox_leave" }
  /** Watches these topics in place of those before; none ends it. */
  | { readonly type: "watch"; readonly topics: readonly string[] }
  | { readonly type: "ping" }
  | { readonly type: "token"; readonly token: string }
);

/** The W3C trace context of the turn that the frame starts, in the form of headers. */
export type FrameTrace = { readonly trace?: TraceHeaders };

export type FrameMessage = {
  readonly id?: string;
  readonly role?: Entry["role"];
  /** Only if the caller is not a user: users write as themselves. */
  readonly author?: string;
  readonly parts: readonly Part[];
  readonly metadata?: Json;
  readonly to?: string;
  readonly tokens?: number;
};

/**
 * What a server sends, as an array of all frames of one turn of its event loop. The events of a `watch`
 * come as frames as well: `WatchEvent`.
 */
export type ServerFrame =
  | {
      readonly type: "hello";
      readonly protocol: 1;
      readonly tenant: string;
      readonly user?: string;
      readonly maxFrameBytes: number;
      readonly expiresAtMs?: number;
    }
  | {
      readonly type: "joined";
      readonly ref: Ref;
      readonly session: string;
      readonly lastSeq: number;
      readonly incarnation: string;
      readonly state: SessionState;
    }
  | {
      readonly type: "reset";
      readonly session: string;
      readonly reason: "ahead" | "incarnation" | "mismatch";
    }
  | { readonly type: "entries"; readonly session: string; readonly entries: readonly Entry[] }
  | { readonly type: "state"; readonly session: string; readonly state: SessionState }
  | {
      readonly type: "chunks";
      readonly session: string;
      readonly epoch: number;
      readonly attempt: number;
      readonly index: number;
      /** With index 0, if the chunks replace more than they are: the index of the next one. */
      readonly nextIndex?: number;
      readonly chunks: readonly Chunk[];
    }
  /** Who has the session open, by name, whole each time. */
  | { readonly type: "presence"; readonly session: string; readonly people: readonly Person[] }
  | {
      readonly type: "ack";
      readonly ref: Ref;
      readonly seq?: number;
      readonly messageId?: string;
      readonly duplicate?: boolean;
      /** For a `stop`: whether there was a turn to stop. */
      readonly done?: boolean;
      /** For a `token`: until when the connection may last now. */
      readonly expiresAtMs?: number;
    }
  | ({ readonly type: "error"; readonly ref?: Ref } & FrameError)
  | {
      readonly type: "inbox";
      readonly ref: Ref;
      readonly sessions: readonly InboxItem[];
      /** Where it is older than a few seconds: up to when it has everything. */
      readonly asOf?: number;
    }
  | {
      readonly type: "inbox_changed";
      readonly sessions: readonly InboxItem[];
      /** The same; absent once it is up to date. */
      readonly asOf?: number;
    }
  | { readonly type: "inbox_removed"; readonly sessionIds: readonly string[] }
  | {
      readonly type: "left";
      readonly session: string;
      /** `asked` confirms a `leave`; `failed` comes with the error, and joining again may help. */
      readonly reason: "asked" | "deleted" | "removed" | "failed";
      readonly ref?: Ref;
      readonly error?: FrameError;
    }
  | { readonly type: "pong"; readonly ref: Ref };

/** A user who has a session open, on one connection or several. */
export type Person = { readonly user: string; readonly typing: boolean };

export type FrameError = {
  readonly code: ErrorCode;
  readonly message: string;
  readonly details: Readonly<Record<string, unknown>>;
  readonly retryAfterMs?: number;
};

/** Why a server closes a connection, besides WebSocket's own codes. */
export const closeCodes = {
  /** The server shuts down; another one, or soon this one again, is available. */
  goingAway: 1001,
  /** A frame is larger than the server accepts. */
  tooBig: 1009,
  /** The token or the key has expired, or was revoked: the reason says which. */
  expired: 4401,
  /** The client does not read what it is sent. It may reconnect with its last seq. */
  tooSlow: 4408,
  /** The client keeps exceeding its rate. */
  tooMany: 4429,
} as const;
