import { FlotillaError } from "../base/errors.ts";
import type { Ids } from "../base/ids.ts";
import type {
  InboxEvent,
  Joined,
  SessionEvent,
  SessionService,
  Sink,
} from "../sessions/service.ts";
import type { TestPod } from "./test-pod.ts";

/**
 * What clients do when a server goes away under them: they ask another with the same ids, and follow on
 * from the last entry that they have. Here the servers are the pods of a test.
 */
export function surviving(pods: readonly TestPod[], ids: Ids): SessionService {
  const alive = (): TestPod => {
    const pod = pods.find((each) => each.alive);
    if (pod) return pod;
    throw new FlotillaError("conflict", "no pod is alive: call startPod() first");
  };

  const ask = async <Answer>(call: (to: SessionService) => Promise<Answer>): Promise<Answer> => {
    for (;;) {
      const pod = alive();
      const gone = pod.gone.then(() => lost);
      const answer = await Promise.race([call(pod.sessionService), gone]);
      if (answer !== lost) return answer as Answer;
    }
  };

  /** Goes on at another pod, where there is one; else when the next is started and asked. */
  const follow = <Event>(
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

  const named = <Given extends { id?: string }>(given: Given): Given => ({
    ...given,
    id: given.id ?? ids.next(),
  });
  return {
    create(tenant, input) {
      const withId = { ...input, sessionId: input.sessionId ?? ids.next() };
      return ask((to) => to.create(tenant, withId));
    },
    send(tenant, sessionId, message) {
      const withId = named(message);
      return ask((to) => to.send(tenant, sessionId, withId));
    },
    toolResult(tenant, sessionId, result) {
      const withId = named(result);
      return ask((to) => to.toolResult(tenant, sessionId, withId));
    },
    regenerate(tenant, sessionId, asked) {
      const withId = named(asked);
      return ask((to) => to.regenerate(tenant, sessionId, withId));
    },
    get: (...given) => ask((to) => to.get(...given)),
    list: (...given) => ask((to) => to.list(...given)),
    entries: (...given) => ask((to) => to.entries(...given)),
    stop: (...given) => ask((to) => to.stop(...given)),
    read: (...given) => ask((to) => to.read(...given)),
    setMetadata: (...given) => ask((to) => to.setMetadata(...given)),
    changeMembers: (...given) => ask((to) => to.changeMembers(...given)),
    compact: (...given) => ask((to) => to.compact(...given)),
    archive: (...given) => ask((to) => to.archive(...given)),
    unarchive: (...given) => ask((to) => to.unarchive(...given)),
    remove: (...given) => ask((to) => to.remove(...given)),
    join(tenant, sessionId, place, sink) {
      let { lastSeq } = place;
      const seen = (event: SessionEvent): boolean => {
        if (event.type === "reset") lastSeq = 0;
        if (event.type === "entries") lastSeq = event.entries.at(-1)?.seq ?? lastSeq;
        return sink.push(event);
      };
      return follow<SessionEvent>(
        (to, mine) => to.join(tenant, sessionId, { ...place, lastSeq }, mine),
        { ...sink, push: seen },
      );
    },
    inbox: (tenant, user, sink) =>
      follow<InboxEvent>((to, mine) => to.inbox(tenant, user, mine), sink),
  };
}

const lost = Symbol("lost");
