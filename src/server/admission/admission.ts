import type { IncomingMessage, ServerResponse } from "node:http";
import type { Context, MiddlewareHandler } from "hono";
import { FlotillaError } from "../../base/errors.ts";
import { type Authenticator, callerIn } from "../auth/authenticate.ts";
import type { Caller } from "../auth/caller.ts";
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
import type { TenantQuotas } from "./tenant-quotas.ts";

/**
 * Holds requests to the limits of their callers. A request counts until its answer is sent and its
 * handler has ended, because a handler whose client has hung up still uses the process.
 */
export type Admission = {
  /** For routes that need credentials: authenticates the caller. */
  readonly known: MiddlewareHandler;
  /** For routes that need no credentials. */
  readonly unknown: MiddlewareHandler;
  /** For routes that need no credentials and answer an authenticated caller with more. */
  readonly either: MiddlewareHandler;
};

export type AdmissionParts = {
  authenticator: Authenticator;
  limits: CallerLimits;
  bodies?: IncomingBodies | undefined;
  anonymous?: Pick<AnonymousConnections, "identify"> | undefined;
  quotas?: Pick<TenantQuotas, "request"> | undefined;
};

/** Node's side of the request; empty where there is no connection. */
type NodeMessages = { incoming?: IncomingMessage; outgoing?: ServerResponse };

type Body = Uint8Array<ArrayBuffer> | ReadableStream<Uint8Array>;

// About what a connection takes at once, so that `flushedBytes` grows while the client reads.
const sliceBytes = 64 * 1024;
const pullOnly = { highWaterMark: 0 };

export function createRequestAdmission({
  authenticator,
  limits,
  bodies,
  anonymous,
  quotas,
}: AdmissionParts): Admission {
  const admitting =
    (accountFor: (c: Context) => Promise<Account>): MiddlewareHandler =>
    async (c, next) => {
      // Listen before authenticating, because the client may hang up during it.
      const closed = untilClosed(c);
      const account = await accountFor(c);
      const caller = c.get("caller") as Caller | undefined;
      if (caller) quotas?.request(caller);
      const slot = limits.enter(account, outgoingOf(c));
      c.set("slot", slot);
      c.set("account", account);
      c.set(
        "incomingBody",
        bodies?.open(() => cutConnection(c)),
      );
      try {
        await next();
      } finally {
        void closed.then(slot.leave);
        // Without a connection the slot ends here: there is no reader to wait for.
        if (!nodeMessagesOf(c).outgoing) c.set("slot", undefined);
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
  const accountOfUnknown = (c: Context): Account => accountOfAddress(addressIn(c));

  return {
    known: admitting(async (c) => {
      try {
        return await accountOfKnown(c);
      } catch (error) {
        // A refused request costs something too. It counts against the address, never against the
        // account of a valid credential: many callers share an address behind a proxy.
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

/** The error of the failed authentication, after `either`; undefined where the caller is known. */
export function refusalIn(c: Context): FlotillaError | undefined {
  return c.get("refusal") as FlotillaError | undefined;
}

/** The address of the connection; undefined where there is none. */
export function addressIn(c: Context): string | undefined {
  return nodeMessagesOf(c).incoming?.socket.remoteAddress;
}

/** The account of the request, as text. */
export function accountIn(c: Context): string {
  const { kind, id } = c.get("account") as Account;
  return `${kind} ${id}`;
}

/** Counts the bytes of the request's body while it arrives. */
export function incomingBodyIn(c: Context): IncomingBody | undefined {
  return c.get("incomingBody") as IncomingBody | undefined;
}

export function isGone(c: Context): boolean {
  return outgoingOf(c).isClosed;
}

/** Ends the connection. Its client repeats the request, or resumes from its position. */
export function cutConnection(c: Context): void {
  outgoingOf(c).cut();
}

/** The body of a complete answer. Throws `overloaded` where a read would leave too many bytes unread. */
export function bodyOf(c: Context, bytes: Uint8Array<ArrayBuffer>): Body {
  countAnswer(c, bytes.length);
  return slicedBody(bytes);
}

/** The body of an answer whose bytes are shared among requests, and so cost no memory of their own. */
export function sharedBody(c: Context, bytes: Uint8Array<ArrayBuffer>): Body {
  countAnswer(c, 0);
  return slicedBody(bytes);
}

/**
 * The body of an answer that is read page by page, each after its client has read the page before.
 * Rejects where the first page fails, so that the status can still tell the error.
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
          // The HTTP adapter would print an error of the stream.
          if (nodeMessagesOf(c).outgoing) cutConnection(c);
          else control.error(error);
        }
      },
    },
    pullOnly,
  );
}

/**
 * Sets how many bytes of an endless answer wait for its connection. Returns false where the answer was
 * cut off, because its caller leaves too much unread.
 */
export function countWaiting(c: Context, waitingBytes: number): boolean {
  return slotIn(c)?.stream(waitingBytes) ?? true;
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

function* slicesOf(bytes: Uint8Array): Iterator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += sliceBytes) yield bytes.subarray(at, at + sliceBytes);
}

function countAnswer(c: Context, bytes: number): void {
  const isRead = c.req.method === "GET" || c.req.method === "HEAD";
  slotIn(c)?.answer(bytes, { isRead });
}

function slotIn(c: Context): RequestSlot | undefined {
  return c.get("slot") as RequestSlot | undefined;
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
    // A pipelined answer emits no `close` when its connection ends, so listen to the socket as well.
    // There may be as many listeners as requests at once.
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
      // `bytesWritten` includes what the socket still buffers.
      return incoming ? incoming.socket.bytesWritten - incoming.socket.writableLength : 0;
    },
    cut: () => void incoming?.socket.destroy(),
  };
}
