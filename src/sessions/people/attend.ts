import { checkText } from "../../base/options.ts";
import type { Attendance, Joined, PresenceEvent, SessionService, Sink } from "../service.ts";
import { maxIdChars } from "../validate.ts";
import type { People } from "./people.ts";

type Attending = {
  sessionId: string;
  user: string | undefined;
  sink: Sink<PresenceEvent>;
};

/** Enters a session once it is known to be there. `check` rejects if it isn't. */
export function attend(
  people: Pick<People, "enter">,
  { sessionId, user, sink }: Attending,
  check: () => Promise<unknown>,
): Attendance {
  let entered: ReturnType<People["enter"]> | undefined;
  let hasLeft = false;
  let isTyping = false;
  const ready = (async () => {
    if (user !== undefined) checkText("user", user, { max: maxIdChars });
    await check();
    if (hasLeft) return;
    entered = people.enter(sessionId, user, sink);
    entered.typing(isTyping);
  })();
  ready.catch((error: unknown) => {
    if (!hasLeft) sink.fail(error);
  });
  return {
    ready,
    typing(next) {
      isTyping = next;
      entered?.typing(next);
    },
    leave() {
      hasLeft = true;
      entered?.leave();
    },
  };
}

/** Looks who is there until the session is deleted, of which its log tells. */
export function lookWhoIsThere(
  service: Pick<SessionService, "get" | "join" | "presence">,
  { tenant, sessionId }: { readonly tenant: string; readonly sessionId: string },
  sink: Sink<PresenceEvent | { readonly type: "deleted" }>,
): Joined {
  const attending = service.presence(tenant, sessionId, undefined, sink);
  let followed: Joined | undefined;
  let hasLeft = false;
  const fail = (error: unknown): void => {
    if (!hasLeft) sink.fail(error);
  };
  const ready = (async () => {
    await attending.ready;
    const { lastSeq } = await service.get(tenant, sessionId);
    if (hasLeft) return;
    followed = service.join(
      tenant,
      sessionId,
      { lastSeq },
      {
        push(event) {
          if (event.type === "deleted") sink.push(event);
          return !hasLeft;
        },
        fail,
      },
    );
    await followed.ready;
  })();
  ready.catch(fail);
  return {
    ready,
    leave() {
      hasLeft = true;
      followed?.leave();
      attending.leave();
    },
  };
}
