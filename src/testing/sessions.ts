import { FlotillaError } from "../base/errors.ts";
import type { Ids } from "../base/ids.ts";
import type { InboxEvent, Joined, FeedEvent, SessionService, Sink } from "../sessions/service.ts";
import { type Chat, createSessions, type Sessions } from "../sessions/sessions.ts";
import type { TestPod } from "./test-pod.ts";

export type TestSessionsParts = {
  pods: readonly TestPod[];
  ids: Ids;
  /** Moves the clock until it has settled, but not while this says that somebody is at work. */
  moveFor<Value>(
    promise: Promise<Value>,
    options: { isHeld: () => boolean; maxMs: number; late: () => FlotillaError },
  ): Promise<Value>;
};

/** A loop over events may look so far ahead for each of them. Behind it, only the test moves the clock. */
const maxEventMs = 60_000;

/**
 * Sessions for a test: whatever is waited for moves the clock, and what was asked of a pod that crashes is
 * asked of another with the same ids, as clients do.
 */
export function createTestSessions({ pods, ids, moveFor }: TestSessionsParts): Sessions {
  const sessions = createSessions(reconnectingService(pods, ids));

  const moved = <Value>(promise: Promise<Value>, sessionId?: string, maxMs = Infinity) => {
    // An agent that awaits something real would be timed out by the clock.
    const isHeld = () =>
      sessionId !== undefined && pods.some((pod) => pod.alive && pod.answering(sessionId));
    return moveFor(promise, { isHeld, maxMs, late: () => tooLong(isHeld()) });
  };
  const movedLoop = <Event>(
    loop: AsyncIterableIterator<Event>,
    sessionId?: string,
  ): AsyncIterableIterator<Event> => ({
    next: () => moved(loop.next(), sessionId, maxEventMs),
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

/**
 * What clients do when a server goes away under them: they ask another with the same ids, and follow on
 * from the last entry that they have. Here the servers are the pods of a test.
 */
function reconnectingService(pods: readonly TestPod[], ids: Ids): SessionService {
  const alive = (): TestPod => {
    const pod = pods.find((each) => each.alive);
    if (pod) return pod;
    throw new FlotillaError("conflict", "no pod is alive: call startPod() first");
  };

  const request = async <Answer>(
    call: (to: SessionService) => Promise<Answer>,
  ): Promise<Answer> => {
    for (;;) {
      const pod = alive();
      const gone = pod.gone.then(() => lost);
      const answer = await Promise.race([call(pod.sessionService), gone]);
      if (answer !== lost) return answer as Answer;
    }
  };

  /** Goes on at another pod, where there is one; else when the next is started and asked. */
  const subscribe = <Event>(
    join: (to: SessionService, sink: Sink<Event>) => Joined,
    sink: Sink<Event>,
  ): Joined => {
    let current: Joined | undefined;
    let left = false;
    const start = (): Joined => {
      const pod = alive();
      const isCurrent = () => pod.alive && !left;
      void pod.gone.then(() => {
        if (left) return;
        try {
          start().ready.catch(() => {});
        } catch (error) {
          sink.fail(error);
        }
      });
      const mine: Sink<Event> = {
        push: (event) => isCurrent() && sink.push(event),
        fail: (error) => {
          if (!isCurrent()) return;
          left = true;
          sink.fail(error);
        },
        ...(sink.drained && { drained: () => sink.drained!() }),
      };
      current = join(pod.sessionService, mine);
      return current;
    };
    const { ready } = start();
    return {
      ready,
      leave() {
        left = true;
        current?.leave();
      },
    };
  };

  const withGeneratedId = <Given extends { id?: string }>(given: Given): Given => ({
    ...given,
    id: given.id ?? ids.next(),
  });
  return {
    create(tenant, input) {
      const withId = { ...input, sessionId: input.sessionId ?? ids.next() };
      return request((to) => to.create(tenant, withId));
    },
    send(tenant, sessionId, message) {
      const withId = withGeneratedId(message);
      return request((to) => to.send(tenant, sessionId, withId));
    },
    toolResult(tenant, sessionId, result) {
      const withId = withGeneratedId(result);
      return request((to) => to.toolResult(tenant, sessionId, withId));
    },
    regenerate(tenant, sessionId, options) {
      const withId = withGeneratedId(options);
      return request((to) => to.regenerate(tenant, sessionId, withId));
    },
    get: (...given) => request((to) => to.get(...given)),
    list: (...given) => request((to) => to.list(...given)),
    entries: (...given) => request((to) => to.entries(...given)),
    stop: (...given) => request((to) => to.stop(...given)),
    read: (...given) => request((to) => to.read(...given)),
    setMetadata: (...given) => request((to) => to.setMetadata(...given)),
    changeMembers: (...given) => request((to) => to.changeMembers(...given)),
    compact: (...given) => request((to) => to.compact(...given)),
    archive: (...given) => request((to) => to.archive(...given)),
    unarchive: (...given) => request((to) => to.unarchive(...given)),
    remove: (...given) => request((to) => to.remove(...given)),
    join(tenant, sessionId, position, sink) {
      let { lastSeq } = position;
      const seen = (event: FeedEvent): boolean => {
        if (event.type === "reset") lastSeq = 0;
        if (event.type === "entries") lastSeq = event.entries.at(-1)?.seq ?? lastSeq;
        return sink.push(event);
      };
      return subscribe<FeedEvent>(
        (to, mine) => to.join(tenant, sessionId, { ...position, lastSeq }, mine),
        { ...sink, push: seen },
      );
    },
    inbox: (tenant, user, sink) =>
      subscribe<InboxEvent>((to, mine) => to.inbox(tenant, user, mine), sink),
  };
}

const lost = Symbol("lost");
