import { FlotillaError } from "../base/errors.ts";
import type { Ids } from "../base/ids.ts";
import { type Chat, createSessions, type Sessions } from "../sessions/sessions.ts";
import { surviving } from "./surviving.ts";
import type { TestPod } from "./test-pod.ts";

export type TestSessionsParts = {
  pods: readonly TestPod[];
  ids: Ids;
  /** Moves the clock until it has settled, but not while this says that somebody is at work. */
  moveFor<Value>(
    promise: Promise<Value>,
    options: { isHeld: () => boolean; mostMs: number; late: () => FlotillaError },
  ): Promise<Value>;
};

/** A loop over events may look so far ahead for each of them. Behind it, only the test moves the clock. */
const eventMostMs = 60_000;

/**
 * Sessions for a test: whatever is waited for moves the clock, and what was asked of a pod that crashes is
 * asked of another with the same ids, as clients do.
 */
export function createTestSessions({ pods, ids, moveFor }: TestSessionsParts): Sessions {
  const sessions = createSessions(surviving(pods, ids));

  const moved = <Value>(promise: Promise<Value>, sessionId?: string, mostMs = Infinity) => {
    // An agent that awaits something real would be timed out by the clock.
    const isHeld = () =>
      sessionId !== undefined && pods.some((pod) => pod.alive && pod.answering(sessionId));
    return moveFor(promise, { isHeld, mostMs, late: () => tooLong(isHeld()) });
  };
  const movedLoop = <Event>(
    loop: AsyncIterableIterator<Event>,
    sessionId?: string,
  ): AsyncIterableIterator<Event> => ({
    next: () => moved(loop.next(), sessionId, eventMostMs),
    return: async () => (await loop.return?.()) ?? { done: true, value: undefined },
    [Symbol.asyncIterator]() {
      return this;
    },
  });

  const movedChat = (chat: Chat): Chat => {
    const { sessionId } = chat;
    return {
      sessionId,
      // Waits for an agent, so it waits as that does. All others only wait for pods.
      ask: (...given) => moved(chat.ask(...given), sessionId),
      events: (options) => movedLoop(chat.events(options), sessionId),
      send: (...given) => moved(chat.send(...given)),
      messages: () => moved(chat.messages()),
      entries: (page) => moved(chat.entries(page)),
      view: () => moved(chat.view()),
      stop: (options) => moved(chat.stop(options)),
      regenerate: (options) => moved(chat.regenerate(options)),
      toolResult: (...given) => moved(chat.toolResult(...given)),
      read: (...given) => moved(chat.read(...given)),
      setMetadata: (...given) => moved(chat.setMetadata(...given)),
      members: (change) => moved(chat.members(change)),
      compact: () => moved(chat.compact()),
      archive: () => moved(chat.archive()),
      unarchive: () => moved(chat.unarchive()),
      remove: () => moved(chat.remove()),
    };
  };
  return {
    create: async (agents, options) => movedChat(await moved(sessions.create(agents, options))),
    open: (sessionId, options) => movedChat(sessions.open(sessionId, options)),
    list: (options) => moved(sessions.list(options)),
    inbox: (user, options) => movedLoop(sessions.inbox(user, options)),
  };
}

function tooLong(isHeld: boolean): FlotillaError {
  return new FlotillaError(
    "timeout",
    isHeld
      ? "the agent still answers: if it waits for the test's clock, use send() and advance()"
      : "what was waited for in the session hasn't come: does a pod have its agent?",
  );
}
