import type { Logger } from "../../base/log.ts";
import type { Ref, ServerFrame } from "../../protocol/frames.ts";
import type { InboxEvent, Joined, SessionService, Sink } from "../../sessions/service.ts";
import { type Caller, may, userOf } from "../auth/caller.ts";
import { ownInbox } from "../auth/own-inbox.ts";
import { errorFrame } from "./frame-error.ts";
import type { Outbox } from "./send-buffer.ts";
import { prepare } from "./prepared.ts";

export type InboxParts = {
  sessions: Pick<SessionService, "inbox">;
  caller: Caller;
  ref: Ref;
  outbox: Outbox;
  log: Logger;
};

/** Sends a user's inbox and what changes in it, until left. */
export function followInbox({ sessions, caller, ref, outbox, log }: InboxParts): Joined {
  let isLeft = false;
  const sink: Sink<InboxEvent> = {
    push: (event) => !isLeft && outbox.push(prepare(frameOf(event, ref))),
    fail(error) {
      if (!isLeft) outbox.push(prepare(errorFrame(ref, error, log)));
      isLeft = true;
    },
    drained: outbox.drained,
  };
  const joined = sessions.inbox(caller.tenant, userOf(caller), ownInbox(caller, sink));
  // What goes wrong comes through the sink.
  joined.ready.catch(() => {});
  return {
    ready: joined.ready,
    leave() {
      isLeft = true;
      joined.leave();
    },
  };
}

/** Whether two callers may see the same in an inbox. */
export function seesSame(one: Caller, other: Caller): boolean {
  const [a, b] = [one.sessions, other.sessions];
  const isSame = !a || !b ? a === b : a.size === b.size && [...a].every((each) => b.has(each));
  return isSame && may(one, "inbox:read") === may(other, "inbox:read");
}

function frameOf(event: InboxEvent, ref: Ref): ServerFrame {
  switch (event.type) {
    case "snapshot":
      return { type: "inbox", ref, sessions: event.sessions };
    case "changed":
      return { type: "inbox_changed", sessions: event.sessions };
    case "removed":
      return { type: "inbox_removed", sessionIds: event.sessionIds };
  }
}
