import { FlotillaError } from "../../base/errors.ts";
import type { ClientFrame, ServerFrame } from "../../protocol/frames.ts";
import type { Sent, SessionService } from "../../sessions/service.ts";
import { areDecisions, messageFrom, authorOf, stopperOf, traceFrom } from "../api/sessions.ts";
import { type Access, type Caller, userOf } from "../auth/caller.ts";

/** A frame that changes a session. */
export type CommandFrame = Extract<
  ClientFrame,
  { type: "send" | "tool_result" | "signal" | "regenerate" | "stop" | "read" }
>;

const writing = { verb: "sessions:write" } as const;
const operating = { ...writing, or: "fleet:operate" } as const;
const open = { open: true } as const;

/** What each frame needs, beyond the credentials that opened the connection. */
export const frameAccess = {
  join: { verb: "sessions:read", or: "fleet:read" },
  leave: open,
  send: writing,
  tool_result: operating,
  signal: operating,
  regenerate: operating,
  stop: operating,
  read: writing,
  presence: { verb: "sessions:read" },
  presence_leave: open,
  inbox: { verb: "inbox:read" },
  inbox_leave: open,
  // Each topic needs what its route needs, besides.
  watch: { verb: "fleet:read", ofTenant: true },
  ping: open,
  token: open,
} as const satisfies Record<ClientFrame["type"], Access | { readonly open: true }>;

/** What this very frame needs: of results only decisions are an operator's, and who types may write. */
export function accessOf(frame: ClientFrame): Access | { readonly open: true } {
  const isOutput = frame.type === "tool_result" && !areDecisions(frame.results);
  const isTyping = frame.type === "presence" && frame.typing;
  return isOutput || isTyping ? writing : frameAccess[frame.type];
}

/** Frames that end or keep something up count for no quota: without them a client could only hang up. */
export function countsAsRequest({ type }: ClientFrame): boolean {
  return "verb" in frameAccess[type];
}

/** Whether an agent may be asked by it; undefined of a frame that stores no entry. */
export function asksAgent(frame: CommandFrame): boolean | undefined {
  if (frame.type === "stop" || frame.type === "read") return undefined;
  return frame.type !== "send" || (frame.message.role ?? "user") === "user";
}

/** The id that its sender has given to what it stores. */
export function writtenId(frame: CommandFrame): string | undefined {
  if (frame.type === "send") return frame.message.id;
  return "id" in frame ? frame.id : undefined;
}

/** The content of its ack. */
type CommandResult = Omit<Extract<ServerFrame, { type: "ack" }>, "type" | "ref">;

/**
 * Starts the commands of each key in order. Started commands run concurrently: the session service keeps
 * their order from there.
 */
export type CommandQueue = {
  /**
   * Runs `check`, then `act`. Later commands of the key wait for `check`, and with `alone` for `act` as
   * well. Neither rejects: they report errors themselves, and `check` then resolves to false. Throws
   * `overloaded` where too many commands are under way.
   */
  add(key: string, command: QueuedCommand): void;
  close(): void;
};

type QueuedCommand = {
  /** Undefined where there is nothing to wait for. */
  readonly check: () => Promise<boolean> | undefined;
  readonly act: () => Promise<void>;
  readonly alone: boolean;
};

/** Executes a frame as its caller. Resolves once it is stored. */
export async function executeCommand(
  sessions: SessionService,
  caller: Caller,
  frame: CommandFrame,
): Promise<CommandResult> {
  const { tenant } = caller;
  const { session } = frame;
  switch (frame.type) {
    case "send":
      return resultOf(
        await sessions.send(tenant, session, {
          ...messageFrom(caller, frame.message),
          ...traceFrom(caller, frame.trace),
        }),
      );
    case "tool_result": {
      const { messageId, results } = frame;
      const result = {
        author: authorOf(caller),
        messageId,
        results,
        ...idOf(frame),
        ...traceFrom(caller, frame.trace),
      };
      return resultOf(await sessions.toolResult(tenant, session, result));
    }
    case "signal": {
      const { name, payload } = frame;
      const signal = {
        author: authorOf(caller),
        name,
        ...(payload !== undefined && { payload }),
        ...idOf(frame),
        ...traceFrom(caller, frame.trace),
      };
      const { seq, duplicate } = await sessions.signal(tenant, session, signal);
      return { seq, ...(duplicate && { duplicate }) };
    }
    case "regenerate": {
      const { messageId } = frame;
      const options = {
        ...idOf(frame),
        ...(messageId !== undefined && { messageId }),
        ...traceFrom(caller, frame.trace),
      };
      return resultOf(await sessions.regenerate(tenant, session, options));
    }
    case "stop": {
      const { epoch } = frame;
      const options = { ...stopperOf(caller), ...(epoch !== undefined && { epoch }) };
      return { done: await sessions.stop(tenant, session, options) };
    }
    case "read": {
      const { seq } = frame;
      await sessions.read(tenant, session, { user: userOf(caller), seq });
      return { seq };
    }
  }
}

export function createCommandQueue({ maxInFlight }: { maxInFlight: number }): CommandQueue {
  /** The promise that the next command of each key waits for. */
  const tails = new Map<string, Promise<void>>();
  let inFlight = 0;
  let closed = false;

  const start = async (act: () => Promise<void>): Promise<void> => {
    if (!closed) await act();
    inFlight--;
  };

  return {
    add(key, { check, act, alone }) {
      if (inFlight >= maxInFlight) {
        throw new FlotillaError(
          "overloaded",
          `${maxInFlight} commands are under way on this connection: wait for their acks`,
          { details: { most: maxInFlight }, retryAfterMs: 100 },
        );
      }
      inFlight++;
      const before = tails.get(key);
      const checking = before ? before.then(check) : check();
      if (!checking && !alone) return void start(act);
      const pass = async (): Promise<void> => {
        if ((await checking) === false) inFlight--;
        else if (alone) await start(act);
        else void start(act);
      };
      const tail: Promise<void> = pass().then(() => {
        if (tails.get(key) === tail) tails.delete(key);
      });
      tails.set(key, tail);
    },
    close() {
      closed = true;
    },
  };
}

function resultOf({ seq, messageId, duplicate }: Sent): CommandResult {
  return { seq, messageId, ...(duplicate && { duplicate }) };
}

function idOf({ id }: { readonly id?: string }): { id?: string } {
  return id === undefined ? {} : { id };
}
