import type { ClientFrame, ServerFrame } from "../../protocol/frames.ts";
import type { Sent, SessionService } from "../../sessions/service.ts";
import { asWritten, authorOf, stopperOf, tracedBy } from "../api/asked-message.ts";
import { type Caller, userOf } from "../auth/caller.ts";

/** A frame that changes a session. */
export type Writing = Extract<
  ClientFrame,
  { type: "send" | "tool_result" | "regenerate" | "stop" | "read" }
>;

/** What its ack says. */
export type Written = Omit<Extract<ServerFrame, { type: "ack" }>, "type" | "ref">;

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
