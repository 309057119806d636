import { FlotillaError } from "../../base/errors.ts";
import type { ClientFrame, ServerFrame } from "../../protocol/frames.ts";
import type { Sent, SessionService } from "../../sessions/service.ts";
import { asWritten, authorOf, stopperOf, tracedBy } from "../api/sessions.ts";
import { type Caller, userOf } from "../auth/caller.ts";

/** A frame that changes a session. */
export type Writing = Extract<
  ClientFrame,
  { type: "send" | "tool_result" | "regenerate" | "stop" | "read" }
>;

/** What its ack says. */
type Written = Omit<Extract<ServerFrame, { type: "ack" }>, "type" | "ref">;

/** Does what a frame asks, as whoever has sent it. Resolves once it is stored. */
export async function write(
  sessions: SessionService,
  who: Caller,
  frame: Writing,
): Promise<Written> {
  const { tenant } = who;
  const { session } = frame;
  switch (frame.type) {
    case "send":
      return sent(
        await sessions.send(tenant, session, {
          ...asWritten(who, frame.message),
          ...tracedBy(who, frame.trace),
        }),
      );
    case "tool_result": {
      const { messageId, results } = frame;
      const result = {
        author: authorOf(who),
        messageId,
        results,
        ...idOf(frame),
        ...tracedBy(who, frame.trace),
      };
      return sent(await sessions.toolResult(tenant, session, result));
    }
    case "regenerate": {
      const { messageId } = frame;
      const asked = {
        ...idOf(frame),
        ...(messageId !== undefined && { messageId }),
        ...tracedBy(who, frame.trace),
      };
      return sent(await sessions.regenerate(tenant, session, asked));
    }
    case "stop": {
      const { epoch } = frame;
      const asked = { ...stopperOf(who), ...(epoch !== undefined && { epoch }) };
      return { done: await sessions.stop(tenant, session, asked) };
    }
    case "read": {
      const { seq } = frame;
      await sessions.read(tenant, session, { user: userOf(who), seq });
      return { seq };
    }
  }
}

function sent({ seq, messageId, duplicate }: Sent): Written {
  return { seq, messageId, ...(duplicate && { duplicate }) };
}

function idOf({ id }: { readonly id?: string }): { id?: string } {
  return id === undefined ? {} : { id };
}

/**
 * Begins what is asked of a key in the order of asking. What has begun goes on side by side: whoever it
 * is asked of keeps the order from there.
 */
export type InOrder = {
  /**
   * `check` comes first, and what follows waits for it where it takes time; with `alone`, it waits for
   * `act` as well. Neither rejects: they say themselves what went wrong, and `check` then gives false.
   * Throws `overloaded` where too much is under way.
   */
  add(key: string, asked: Asked): void;
  close(): void;
};

type Asked = {
  /** Undefined where there is nothing to wait for. */
  readonly check: () => Promise<boolean> | undefined;
  readonly act: () => Promise<void>;
  readonly alone: boolean;
};

export function createInOrder({ most }: { most: number }): InOrder {
  /** What the next of each key has to wait for. */
  const gates = new Map<string, Promise<void>>();
  let underWay = 0;
  let closed = false;

  const start = async (act: () => Promise<void>): Promise<void> => {
    if (!closed) await act();
    underWay--;
  };

  return {
    add(key, { check, act, alone }) {
      if (underWay >= most) {
        throw new FlotillaError(
          "overloaded",
          `${most} things are under way on this connection: wait for their answers`,
          { details: { most }, retryAfterMs: 100 },
        );
      }
      underWay++;
      const before = gates.get(key);
      const checking = before ? before.then(check) : check();
      if (!checking && !alone) return void start(act);
      const pass = async (): Promise<void> => {
        if ((await checking) === false) underWay--;
        else if (alone) await start(act);
        else void start(act);
      };
      const gate: Promise<void> = pass().then(() => {
        if (gates.get(key) === gate) gates.delete(key);
      });
      gates.set(key, gate);
    },
    close() {
      closed = true;
    },
  };
}
