import { FlotillaError } from "../base/errors.ts";
import type { Ids } from "../base/ids.ts";
import type {
  Attendance,
  FeedEvent,
  InboxEvent,
  Joined,
  PresenceEvent,
  SessionService,
  Sink,
} from "../sessions/service.ts";
import { type Chat, createSessions, type Sessions } from "../sessions/sessions.ts";
import type { TestPod } from "./test-pod.ts";

export type TestSessionsParts = {
  pods: readonly TestPod[];
  ids: Ids;
  /** Moves the clock until the promise has settled, but not while `isHeld` returns true. */
  moveFor<Value>(
    promise: Promise<Value>,
    options: { isHeld: () => boolean; maxMs: number; late: () => FlotillaError },
  ): Promise<Value>;
};

/** How far a loop over events moves the clock for the next event. After that only the test moves it. */
const maxEventMs = 60_000;

const lost = Symbol("lost");

/**
 * Sessions for a test. Waiting moves the clock, and a request to a pod that crashes is sent to another one
 * with the same ids, as clients do.
 */
export function createTestSessions({ pods, ids, moveFor }: TestSessionsParts): Sessions {
  const sessions = createSessions(reconnectingService(pods, ids));

  const moved = <Value>(promise: Promise<Value>, sessionId?: string, maxMs = Infinity) => {
    // Moving the clock would time out an agent that awaits real I/O.
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
      // Only `ask` and `events` wait for an agent, so they pass the session. The others wait for pods.
      ask: (...args) => moved(chat.ask(...args), sessionId),
      events: (options) => movedLoop(chat.events(options), sessionId),
      presence: (options) => movedLoop(chat.presence(options)),
      upload: (...args) => moved(chat.upload(...args)),
      send: (...args) => moved(chat.send(...args)),
      messages: () => moved(chat.messages()),
      entries: (page) => moved(chat.entries(page)),
      turns: (page) => moved(chat.turns(page)),
      started: () => moved(chat.started()),
      view: () => moved(chat.view()),
      stop: (options) => moved(chat.stop(options)),
      regenerate: (options) => moved(chat.regenerate(options)),
      toolResult: (...args) => moved(chat.toolResult(...args)),
      signal: (...args) => moved(chat.signal(...args)),
      wake: (wake) => moved(chat.wake(wake)),
      wakes: () => moved(chat.wakes()),
      cancelWake: (...args) => moved(chat.cancelWake(...args)),
      read: (...args) => moved(chat.read(...args)),
      setMetadata: (...args) => moved(chat.setMetadata(...args)),
      members: (change) => moved(chat.members(change)),
      compact: () => moved(chat.compact()),
      archive: () => moved(chat.archive()),
      unarchive: () => moved(chat.unarchive()),
      remove: () => moved(chat.remove()),
      fork: async (options) => movedChat(await moved(chat.fork(options))),
      async edit(...args) {
        const edited = await moved(chat.edit(...args));
        return { ...edited, chat: movedChat(edited.chat) };
      },
      forks: (query) => moved(chat.forks(query)),
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
      ? "the agent is still answering: if it waits for the test's clock, use send() and advance()"
      : "the session's result hasn't come in time: does a pod have its agent?",
  );
}

/**
 * Reconnects like a client whose server goes away: sends the request to another pod with the same ids, and
 * resubscribes from the last entry that it has.
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

  /** Resubscribes at another live pod when the present one is gone; fails where there is none. */
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

  const withGeneratedId = <Input extends { id?: string }>(input: Input): Input => ({
    ...input,
    id: input.id ?? ids.next(),
  });
  return {
    create(tenant, input) {
      const withId = { ...input, sessionId: input.sessionId ?? ids.next() };
      return request((to) => to.create(tenant, withId));
    },
    upload(...args) {
      const pod = alive();
      // What the pod has read of a stream can't be read again.
      const gone = pod.gone.then(() => {
        throw new FlotillaError("closed", "the pod was stopped within an upload: upload again");
      });
      return Promise.race([pod.sessionService.upload(...args), gone]);
    },
    send(tenant, sessionId, message) {
      const withId = withGeneratedId(message);
      return request((to) => to.send(tenant, sessionId, withId));
    },
    toolResult(tenant, sessionId, result) {
      const withId = withGeneratedId(result);
      return request((to) => to.toolResult(tenant, sessionId, withId));
    },
    signal(tenant, sessionId, signal) {
      const withId = withGeneratedId(signal);
      return request((to) => to.signal(tenant, sessionId, withId));
    },
    wake(tenant, sessionId, wake) {
      const withId = withGeneratedId(wake);
      return request((to) => to.wake(tenant, sessionId, withId));
    },
    regenerate(tenant, sessionId, options) {
      const withId = withGeneratedId(options);
      return request((to) => to.regenerate(tenant, sessionId, withId));
    },
    wakes: (...args) => request((to) => to.wakes(...args)),
    cancelWake: (...args) => request((to) => to.cancelWake(...args)),
    fireWake: (...args) => request((to) => to.fireWake(...args)),
    fork(tenant, sessionId, input) {
      const withId = withGeneratedId(input);
      return request((to) => to.fork(tenant, sessionId, withId));
    },
    edit(tenant, sessionId, message) {
      const withId = withGeneratedId(message);
      return request((to) => to.edit(tenant, sessionId, withId));
    },
    forks: (...args) => request((to) => to.forks(...args)),
    bring: (...args) => request((to) => to.bring(...args)),
    get: (...args) => request((to) => to.get(...args)),
    list: (...args) => request((to) => to.list(...args)),
    entries: (...args) => request((to) => to.entries(...args)),
    turns: (...args) => request((to) => to.turns(...args)),
    started: (...args) => request((to) => to.started(...args)),
    isStored: (...args) => request((to) => to.isStored(...args)),
    stop: (...args) => request((to) => to.stop(...args)),
    read: (...args) => request((to) => to.read(...args)),
    setMetadata: (...args) => request((to) => to.setMetadata(...args)),
    changeMembers: (...args) => request((to) => to.changeMembers(...args)),
    compact: (...args) => request((to) => to.compact(...args)),
    archive: (...args) => request((to) => to.archive(...args)),
    unarchive: (...args) => request((to) => to.unarchive(...args)),
    remove: (...args) => request((to) => to.remove(...args)),
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
    presence(tenant, sessionId, user, sink) {
      let attendance: Attendance | undefined;
      const joined = subscribe<PresenceEvent>(
        (to, mine) => (attendance = to.presence(tenant, sessionId, user, mine)),
        sink,
      );
      return { ...joined, typing: (isTyping) => attendance?.typing(isTyping) };
    },
    inbox: (tenant, user, sink) =>
      subscribe<InboxEvent>((to, mine) => to.inbox(tenant, user, mine), sink),
  };
}
