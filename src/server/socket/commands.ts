import { FlotillaError } from "../../base/errors.ts";
import type { ClientFrame, ServerFrame } from "../../protocol/frames.ts";
import type { Sent, SessionService } from "../../sessions/service.ts";
import { messageFrom, authorOf, stopperOf, traceFrom } from "../api/sessions.ts";
import { type Caller, userOf } from "../auth/caller.ts";

/** A frame that changes a session. */
export type CommandFrame = Extract<
  ClientFrame,
  { type: "send" | "tool_result" | "regenerate" | "stop" | "read" }
>;

/** What its ack says. */
type CommandResult = Omit<Extract<ServerFrame, { type: "ack" }>, "type" | "ref">;

/** Does what a frame asks, as whoever has sent it. Resolves once it is stored. */
export async function executeCommand(
  sessions: SessionService,
  who: Caller,
  frame: CommandFrame,
): Promise<CommandResult> {
  const { tenant } = who;
  const { session } = frame;
  switch (frame.type) {
    case "send":
      return resultOf(
        await sessions.send(tenant, session, {
          ...messageFrom(who, frame.message),
          ...traceFrom(who, frame.trace),
        }),
      );
    case "tool_result": {
      const { messageId, results } = frame;
      const result = {
        author: authorOf(who),
        messageId,
        results,
        ...idOf(frame),
        ...traceFrom(who, frame.trace),
      };
      return resultOf(await sessions.toolResult(tenant, session, result));
    }
    case "regenerate": {
      const { messageId } = frame;
      const options = {
        ...idOf(frame),
        ...(messageId !== undefined && { messageId }),
        ...traceFrom(who, frame.trace),
      };
      return resultOf(await sessions.regenerate(tenant, session, options));
    }
    case "stop": {
      const { epoch } = frame;
      const options = { ...stopperOf(who), ...(epoch !== undefined && { epoch }) };
      return { done: await sessions.stop(tenant, session, options) };
    }
    case "read": {
      const { seq } = frame;
      await sessions.read(tenant, session, { user: userOf(who), seq });
      return { seq };
    }
  }
}

function resultOf({ seq, messageId, duplicate }: Sent): CommandResult {
  return { seq, messageId, ...(duplicate && { duplicate }) };
}

function idOf({ id }: { readonly id?: string }): { id?: string } {
  return id === undefined ? {} : { id };
}

/**
 * Begins what is asked of a key in the order of asking. What has begun goes on side by side: whoever it
 * is asked of keeps the order from there.
 */
export type CommandQueue = {
  /**
   * `check` comes first, and what follows waits for it where it takes time; with `alone`, it waits for
   * `act` as well. Neither rejects: they say themselves what went wrong, and `check` then gives false.
   * Throws `overloaded` where too much is under way.
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

export function createCommandQueue({ maxInFlight }: { maxInFlight: number }): CommandQueue {
  /** What the next of each key has to wait for. */
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
          `${maxInFlight} things are under way on this connection: wait for their answers`,
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
