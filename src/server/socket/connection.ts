import type { RawData, WebSocket } from "ws";
import { actAs } from "../../audit/actor.ts";
import type { Clock } from "../../base/clock.ts";
import { FlotillaError } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import { createRateLimit } from "../../base/token-bucket.ts";
import { type ClientFrame, closeCodes, type Ref, type ServerFrame } from "../../protocol/frames.ts";
import { parseClientFrame, refOf } from "../../protocol/parse-frame.ts";
import type { SessionService } from "../../sessions/service.ts";
import type { Settle, TenantQuotas } from "../admission/tenant-quotas.ts";
import type { Authenticator } from "../auth/authenticate.ts";
import { type Access, actorOf, type Caller, requireAccess, requireVerb } from "../auth/caller.ts";
import type { Members } from "../auth/members.ts";
import type { Serializer } from "../serializer.ts";
import type { WatchHub } from "../watch/hub.ts";
import {
  createCommandQueue,
  type CommandQueue,
  executeCommand,
  type CommandFrame,
  accessOf,
  asksAgent,
  countsAsRequest,
  frameAccess,
  writtenId,
} from "./commands.ts";
import { createSendBuffer, errorFrame, encodeFrame } from "./send-buffer.ts";
import { createSubscriptions, hasSameView, joinInbox, type JoinedInbox } from "./subscriptions.ts";

export type SocketConnectionParts = {
  sessions: SessionService;
  members: Members;
  serializer: Serializer;
  authenticator: Authenticator;
  hub: Pick<WatchHub, "watch">;
  quotas?: Pick<TenantQuotas, "request" | "write"> | undefined;
  /** Calls back at the end of this turn of the event loop. */
  later: (callback: () => void) => void;
  maxFrameBytes: number;
  bufferBytes: number;
  /** The client's limit. Default 100. */
  framesPerSecond?: number | undefined;
  clock: Clock;
  log: Logger;
  /** Called when a connection is cut because of its client. */
  onCut: (why: CutReason) => void;
  /** Where the connection comes from, for the audit. */
  address?: string | undefined;
  /** Updates the unread bytes of the connection. Returns false where it was cut for them. */
  count?: (() => boolean) | undefined;
};

/** The client read too slowly, answered no pings, or sent too many frames. */
export type CutReason = "slow" | "silent" | "too_many";

export type SocketConnection = {
  /** Pings the client, or ends the connection where the last pings weren't answered. */
  ping(): void;
  close(code: number, reason: string): void;
};

const defaultFramesPerSecond = 100;
// A client that goes on after so many refusals ignores them.
const maxRefusals = 200;
const maxBatchFrames = 200;
const maxInFlight = 64;
const maxPingsMissed = 2;
/** Frames that read the session before they change it. */
const readsFirst: ReadonlySet<string> = new Set(["tool_result", "signal", "regenerate"]);
// Well within the maximum of a timer.
const recheckMs = 3_600_000;

/** One client's connection: validates and executes its frames, and sends it events. */
export function createSocketConnection(
  socket: WebSocket,
  initialCaller: Caller,
  parts: SocketConnectionParts,
): SocketConnection {
  const { sessions, members, framesPerSecond = defaultFramesPerSecond, clock, log } = parts;
  const framesBurst = 2 * framesPerSecond;
  let caller = initialCaller;
  let inbox: (JoinedInbox & { readonly ref: Ref }) | undefined;
  let watching: { readonly ref: Ref; readonly topics: readonly string[]; stop(): void } | undefined;
  let pingsMissed = 0;
  let refusals = 0;
  /** Closed by this side: frames that still arrive are ignored. */
  let isOver = false;

  const close = (code: number, reason: string) => {
    isOver = true;
    sendBuffer.flush();
    sendBuffer.close();
    socket.close(code, reason);
  };
  const sendBuffer = createSendBuffer({
    socket,
    maxBytes: parts.bufferBytes,
    later: parts.later,
    count: parts.count,
    onFull() {
      isOver = true;
      parts.onCut("slow");
      socket.close(closeCodes.tooSlow, "too slow: join again with the last seq");
    },
  });
  const bucket = createRateLimit(clock, { perSecond: framesPerSecond, burst: framesBurst });
  let commands: CommandQueue | undefined;
  /** Of what quotas have admitted and that isn't stored yet. */
  const settles = new Set<Settle>();
  const subscriptions = createSubscriptions({ ...parts, caller: () => caller, sendBuffer });
  const expire = () => close(closeCodes.expired, "the token has expired");
  let stopExpiry = onExpiry(clock, caller, expire);
  const endRefused = ({ code, message }: FlotillaError) =>
    close(code === "unauthorized" ? closeCodes.expired : closeCodes.goingAway, message);
  let stopWatch = parts.authenticator.watch(caller, endRefused);

  const push = (frame: ServerFrame) => sendBuffer.push(encodeFrame(frame));
  const fail = (ref: Ref | undefined, error: unknown) => push(errorFrame(ref, error, log));

  /** Executes a command after earlier ones of the same session on this connection. */
  const queueCommand = (frame: CommandFrame, or: Access["or"]) => {
    const sender = caller;
    const { ref, session } = frame;
    let settle: Settle | undefined;
    const onAdmitted = (made: Settle | undefined): void => {
      settle = made;
      if (!made) return;
      // A connection that has closed doesn't act any more.
      if (isOver) made();
      else settles.add(made);
    };
    const admit = (): Promise<void> | undefined => {
      const begins = asksAgent(frame);
      if (begins === undefined) return undefined;
      const admitted = parts.quotas?.write(sender, session, { begins, id: writtenId(frame) });
      if (admitted instanceof Promise) return admitted.then(onAdmitted);
      onAdmitted(admitted);
      return undefined;
    };
    commands ??= createCommandQueue({ maxInFlight });
    commands.add(session, {
      check() {
        const checking = members.check(sender, session, { retries: true, ...(or && { or }) });
        const passing = checking ? checking.then(admit) : admit();
        return passing?.then(
          () => true,
          (error: unknown) => (fail(ref, error), false),
        );
      },
      async act() {
        // What is being stored counts as under way also when the connection closes.
        if (settle) settles.delete(settle);
        try {
          const execute = () => executeCommand(sessions, sender, frame);
          // What no operator may do is no act, and most frames are messages.
          const result = or ? actAs(actorOf(sender, parts), execute) : execute();
          push({ type: "ack", ref, ...(await result) });
        } catch (error) {
          fail(ref, error);
        } finally {
          settle?.();
        }
      },
      alone: readsFirst.has(frame.type),
    });
  };

  const renew = async (ref: Ref, token: string) => {
    try {
      if (caller.expiresAtMs === undefined)
        throw new FlotillaError(
          "conflict",
          "this connection was opened without an expiring token and needs no new one",
        );
      const named = caller.allTenants ? encodeURIComponent(caller.tenant) : undefined;
      const next = await parts.authenticator.caller({
        bearer: token,
        // A token for all tenants stays with the one that this connection was opened for.
        header: (name) => (name === "flotilla-tenant" ? named : undefined),
        headerNames: () => [],
      });
      // Nothing would stop the timers below for a connection that has closed meanwhile.
      if (socket.readyState !== socket.OPEN) return;
      const { kind, tenant, user } = caller;
      if (next.kind !== kind || next.tenant !== tenant || next.user !== user)
        throw new FlotillaError(
          "forbidden",
          "the new token is of another tenant or user: open another connection",
        );
      const seesOther = !hasSameView(caller, next);
      caller = next;
      stopExpiry();
      stopExpiry = onExpiry(clock, caller, expire);
      stopWatch();
      stopWatch = parts.authenticator.watch(caller, endRefused);
      const { expiresAtMs } = caller;
      push({ type: "ack", ref, ...(expiresAtMs !== undefined && { expiresAtMs }) });
      subscriptions.checkAgain();
      if (seesOther) reopenInbox();
      watchAgain();
    } catch (error) {
      fail(ref, error);
    }
  };

  const openInbox = (ref: Ref) => {
    requireVerb(caller, "inbox:read");
    inbox = { ref, ...joinInbox({ sessions, caller, ref, sendBuffer, log }) };
  };
  /** A new token may allow other sessions, or none. So send the inbox again, or an error. */
  const reopenInbox = () => {
    if (!inbox) return;
    const { ref, leave } = inbox;
    leave();
    inbox = undefined;
    try {
      openInbox(ref);
    } catch (error) {
      fail(ref, error);
    }
  };

  const watch = (ref: Ref, topics: readonly string[]) => {
    const sink = { push: sendBuffer.push, drained: sendBuffer.drained };
    const stop = topics.length === 0 ? undefined : parts.hub.watch(caller, topics, sink);
    // Only now, so that a frame that is refused changes nothing.
    watching?.stop();
    watching = stop && { ref, topics, stop };
  };
  /** A new token may show more or less of a topic, or forbid it. So begin anew, or send an error. */
  const watchAgain = () => {
    if (!watching) return;
    const { ref, topics } = watching;
    watching.stop();
    watching = undefined;
    try {
      requireAccess(caller, frameAccess.watch);
      watch(ref, topics);
    } catch (error) {
      fail(ref, error);
    }
  };

  const handle = (frame: ClientFrame): void => {
    const { ref } = frame;
    const access = accessOf(frame);
    if (countsAsRequest(frame)) parts.quotas?.request(caller);
    if ("verb" in access) requireAccess(caller, access);
    // Clients ping by themselves, for as long as a page is open.
    if (frame.type !== "ping") parts.authenticator.use(caller);
    switch (frame.type) {
      case "send":
      case "tool_result":
      case "signal":
      case "regenerate":
      case "stop":
      case "read":
        return queueCommand(frame, "verb" in access ? access.or : undefined);
      case "join":
        return subscriptions.join(frame);
      case "leave":
        return subscriptions.leave(frame.session, ref);
      case "presence":
        return subscriptions.attend(frame);
      case "presence_leave":
        return subscriptions.leavePeople(frame.session, ref);
      case "inbox":
        inbox?.abandon();
        return openInbox(ref);
      case "inbox_leave":
        inbox?.abandon();
        inbox = undefined;
        return void push({ type: "ack", ref });
      case "watch":
        watch(ref, frame.topics);
        return void push({ type: "ack", ref });
      case "ping":
        return void push({ type: "pong", ref });
      case "token":
        return void renew(ref, frame.token);
    }
  };

  /** Whether this frame exceeds the rate. A client that goes on regardless is cut off. */
  const isTooMany = (ref: Ref | undefined): boolean => {
    const retryAfterMs = bucket.take();
    if (retryAfterMs === 0) {
      // An accepted frame makes up for one refusal only.
      refusals = Math.max(0, refusals - 1);
      return false;
    }
    const details = { framesPerSecond, framesBurst };
    fail(ref, new FlotillaError("overloaded", "too many frames", { details, retryAfterMs }));
    if (++refusals > maxRefusals && !isOver) {
      parts.onCut("too_many");
      close(closeCodes.tooMany, "too many frames");
    }
    return true;
  };

  const receive = (value: unknown) => {
    const ref = refOf(value);
    if (isTooMany(ref)) return;
    try {
      handle(parseClientFrame(value));
    } catch (error) {
      fail(ref, error);
    }
  };

  const read = (data: RawData, isBinary: boolean): void => {
    if (isOver) return;
    if (isExpired(caller, clock)) return expire();
    let value: unknown;
    try {
      if (isBinary) throw new FlotillaError("invalid_input", "frames are text, not binary");
      value = JSON.parse((data as Buffer).toString());
    } catch (error) {
      if (isTooMany(undefined)) return;
      const notJson = new FlotillaError("invalid_input", "the frame isn't JSON");
      return void fail(undefined, error instanceof FlotillaError ? error : notJson);
    }
    if (!Array.isArray(value)) return receive(value);
    if (value.length === 0 || value.length > maxBatchFrames) {
      if (isTooMany(undefined)) return;
      const message = `a message holds 1 to ${maxBatchFrames} frames`;
      return void fail(undefined, new FlotillaError("invalid_input", message));
    }
    for (const each of value as unknown[]) if (!isOver) receive(each);
  };

  socket.on("message", (data: RawData, isBinary: boolean) => {
    pingsMissed = 0;
    // Defer to the end of this turn of the event loop, so that frames of all clients are stored together.
    if (socket.readyState === socket.OPEN) parts.later(() => read(data, isBinary));
  });
  // Not answered by the library: pongs to a client that doesn't read would pile up unbounded.
  socket.on("ping", (data: Buffer) => {
    if (!isTooMany(undefined) && socket.bufferedAmount < parts.bufferBytes) socket.pong(data);
  });
  socket.on("pong", () => (pingsMissed = 0));
  // `close` follows, and handles it.
  socket.on("error", () => {});
  socket.once("close", () => {
    // A deferred `read` would join a session for a closed connection.
    isOver = true;
    sendBuffer.close();
    commands?.close();
    for (const settle of settles) settle();
    subscriptions.close();
    inbox?.leave();
    watching?.stop();
    stopExpiry();
    stopWatch();
  });

  const { tenant, user, expiresAtMs } = caller;
  push({
    type: "hello",
    protocol: 1,
    tenant,
    ...(user !== undefined && { user }),
    maxFrameBytes: parts.maxFrameBytes,
    ...(expiresAtMs !== undefined && { expiresAtMs }),
  });
  return {
    ping() {
      if (pingsMissed >= maxPingsMissed) {
        parts.onCut("silent");
        return socket.terminate();
      }
      pingsMissed++;
      if (socket.readyState === socket.OPEN) socket.ping();
    },
    close,
  };
}

/** Calls back when the caller's token expires; never where the caller has no expiry. */
export function onExpiry(clock: Clock, { expiresAtMs }: Caller, callback: () => void): () => void {
  if (expiresAtMs === undefined) return () => {};
  let cancel: () => void;
  const check = () => {
    const leftMs = expiresAtMs - clock.now();
    // A timer can't be set for longer than some weeks, and clocks are corrected: so check again.
    if (leftMs <= 0) callback();
    else cancel = clock.after(Math.min(leftMs, recheckMs), check);
  };
  cancel = clock.after(Math.max(0, Math.min(expiresAtMs - clock.now(), recheckMs)), check);
  return () => cancel();
}

function isExpired({ expiresAtMs }: Caller, clock: Clock): boolean {
  return expiresAtMs !== undefined && clock.now() >= expiresAtMs;
}
