import type { IncomingMessage, ServerResponse } from "node:http";
import type { Context, MiddlewareHandler } from "hono";
import { FlotillaError } from "../../base/errors.ts";
import { type Authenticator, callerIn } from "../auth/authenticate.ts";
import type { AnonymousConnections } from "./anonymous-connections.ts";
import type { IncomingBodies, IncomingBody } from "./incoming-bytes.ts";
import {
  type Account,
  accountOf,
  accountOfAddress,
  type CallerLimits,
  type OutgoingResponse,
  type RequestSlot,
} from "./caller-limits.ts";

/**
 * Holds requests to the limits of their callers, from their beginning until their answers are sent and
 * their handlers have ended: one whose client has hung up still costs what it does.
 */
export type Admission = {
  /** For routes that need credentials: finds out who calls. */
  readonly known: MiddlewareHandler;
  /** For what answers anybody. */
  readonly unknown: MiddlewareHandler;
  /** For what answers anybody, and tells more to a caller that is known. */
  readonly either: MiddlewareHandler;
};

export type AdmissionParts = {
  authenticator: Authenticator;
  limits: CallerLimits;
  bodies?: IncomingBodies | undefined;
  anonymous?: Pick<AnonymousConnections, "identify"> | undefined;
};

/** What the request came by; nothing of it where there is no connection. */
type NodeMessages = { incoming?: IncomingMessage; outgoing?: ServerResponse };

export function createRequestAdmission({
  authenticator,
  limits,
  bodies,
  anonymous,
}: AdmissionParts): Admission {
  const admitting =
    (accountFor: (c: Context) => Promise<Account>): MiddlewareHandler =>
    async (c, next) => {
      // Listened for at once: the client may leave while it is found out who it is.
      const closed = untilClosed(c);
      const account = await accountFor(c);
      const slot = limits.enter(account, outgoingOf(c));
      c.set("visit", slot);
      c.set("account", account);
      c.set(
        "coming",
        bodies?.open(() => cutConnection(c)),
      );
      try {
        await next();
      } finally {
        void closed.then(slot.leave);
        // Without a connection the visit ends here, and nothing waits for one to be read.
        if (!nodeMessagesOf(c).outgoing) c.set("visit", undefined);
      }
    };

  const accountOfKnown = async (c: Context): Promise<Account> => {
    const { incoming } = nodeMessagesOf(c);
    const caller = await callerIn(c, authenticator);
    const account = accountOf(caller);
    const user = account.kind === "user" ? account.id : undefined;
    if (incoming) anonymous?.identify(incoming.socket, user);
    return account;
  };
  const accountOfUnknown = (c: Context): Account =>
    accountOfAddress(nodeMessagesOf(c).incoming?.socket.remoteAddress);

  return {
    known: admitting(async (c) => {
      try {
        return await accountOfKnown(c);
      } catch (error) {
        // What is refused costs something too. It never counts against a credential that is right: many
        // callers share an address behind a proxy.
        limits.count(accountOfUnknown(c));
        throw error;
      }
    }),
    unknown: admitting(async (c) => accountOfUnknown(c)),
    either: admitting(async (c) => {
      try {
        return await accountOfKnown(c);
      } catch (error) {
        if (!(error instanceof FlotillaError)) throw error;
        c.set("refusal", error);
        return accountOfUnknown(c);
      }
    }),
  };
}

/** Why it isn't known who calls, after `either`; undefined where it is. */
export function refusalIn(c: Context): FlotillaError | undefined {
  return c.get("refusal") as FlotillaError | undefined;
}

/** Whose request it is, as text. */
export function accountIn(c: Context): string {
  const { kind, id } = c.get("account") as Account;
  return `${kind} ${id}`;
}

/** What counts the request's body while it comes. */
export function incomingBodyIn(c: Context): IncomingBody | undefined {
  return c.get("coming") as IncomingBody | undefined;
}

export function isGone(c: Context): boolean {
  return outgoingOf(c).isClosed;
}

/** Ends the connection. Its client asks again, or goes on from where it was. */
export function cutConnection(c: Context): void {
  outgoingOf(c).cut();
}

// As much as a connection takes at once, so that what it has sent shows while its client reads.
const sliceBytes = 64 * 1024;

type Body = Uint8Array<ArrayBuffer> | ReadableStream<Uint8Array>;

/** The body of an answer of which all bytes are there. Throws `overloaded` where a read is refused for it. */
export function bodyOf(c: Context, bytes: Uint8Array<ArrayBuffer>): Body {
  countAnswer(c, bytes.length);
  return slicedBody(bytes);
}

/** The body of an answer that many share, and that takes no memory of its own. */
export function sharedBody(c: Context, bytes: Uint8Array<ArrayBuffer>): Body {
  countAnswer(c, 0);
  return slicedBody(bytes);
}

function slicedBody(bytes: Uint8Array<ArrayBuffer>): Body {
  if (bytes.length <= sliceBytes) return bytes;
  const slices = slicesOf(bytes);
  return new ReadableStream(
    {
      pull(control) {
        const { value, done } = slices.next();
        if (done) control.close();
        else control.enqueue(value);
      },
    },
    pullOnly,
  );
}

/**
 * The body of an answer that is read page by page, each once its client has read what was before it.
 * Rejects where the first can't be had, which the status tells then.
 */
export async function pagedBody(
  c: Context,
  nextPage: () => Promise<Uint8Array | undefined>,
  onError: (error: unknown) => void,
): Promise<ReadableStream<Uint8Array>> {
  const next = async () => {
    const page = await nextPage();
    if (page) countAnswer(c, page.length);
    return page && slicesOf(page);
  };
  let slices = await next();
  return new ReadableStream(
    {
      async pull(control) {
        try {
          let slice = slices?.next();
          if (slice?.done) {
            slices = await next();
            slice = slices?.next();
          }
          if (!slice || slice.done) control.close();
          else control.enqueue(slice.value);
        } catch (error) {
          if (isGone(c)) return;
          onError(error);
          // An error of the stream would be printed by what answers.
          if (nodeMessagesOf(c).outgoing) cutConnection(c);
          else control.error(error);
        }
      },
    },
    pullOnly,
  );
}

const pullOnly = { highWaterMark: 0 };

function* slicesOf(bytes: Uint8Array): Iterator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += sliceBytes) yield bytes.subarray(at, at + sliceBytes);
}

/**
 * So many bytes of an answer without end wait for its connection. False where it was cut off for too
 * much that isn't read.
 */
export function countWaiting(c: Context, waitingBytes: number): boolean {
  return slotIn(c)?.stream(waitingBytes) ?? true;
}

function countAnswer(c: Context, bytes: number): void {
  const isRead = c.req.method === "GET" || c.req.method === "HEAD";
  slotIn(c)?.answer(bytes, { isRead });
}

function slotIn(c: Context): RequestSlot | undefined {
  return c.get("visit") as RequestSlot | undefined;
}

function nodeMessagesOf(c: Context): NodeMessages {
  return (c.env ?? {}) as NodeMessages;
}

/** Resolves when the answer is sent or its connection has ended. */
function untilClosed(c: Context): Promise<void> {
  const { incoming, outgoing } = nodeMessagesOf(c);
  if (!incoming || !outgoing || isGone(c)) return Promise.resolve();
  const { socket } = incoming;
  return new Promise((resolve) => {
    const closed = () => {
      socket.off("close", closed);
      resolve();
    };
    outgoing.once("close", closed);
    // An answer that waits behind others of its connection isn't told when that ends. There may be as
    // many of them as requests at once.
    socket.setMaxListeners(0);
    socket.once("close", closed);
  });
}

function outgoingOf(c: Context): OutgoingResponse {
  const { incoming, outgoing } = nodeMessagesOf(c);
  return {
    get isClosed() {
      return outgoing?.destroyed === true || incoming?.socket.destroyed === true;
    },
    get unflushedBytes() {
      return outgoing?.writableLength ?? 0;
    },
    get flushedBytes() {
      // What the socket calls written is still with it in part.
      return incoming ? incoming.socket.bytesWritten - incoming.socket.writableLength : 0;
    },
    cut: () => void incoming?.socket.destroy(),
  };
}
