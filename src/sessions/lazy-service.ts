import type { Joined, SessionService, Sink } from "./service.ts";

type Asking = Exclude<keyof SessionService, "join" | "inbox">;
type Answered<Name extends Asking> = Awaited<ReturnType<SessionService[Name]>>;

/** A service that is made when it is first asked for something. Where it can't be, every call rejects. */
export function lazyService(make: () => SessionService): SessionService {
  const asking =
    <Name extends Asking>(name: Name) =>
    async (...given: Parameters<SessionService[Name]>): Promise<Answered<Name>> =>
      (make()[name] as (...all: unknown[]) => Promise<Answered<Name>>)(...given);
  const following = (sink: Sink<never>, follow: (service: SessionService) => Joined): Joined => {
    try {
      return follow(make());
    } catch (error) {
      sink.fail(error);
      const ready = Promise.reject(error as Error);
      ready.catch(() => {});
      return { ready, leave: () => {} };
    }
  };
  return {
    create: asking("create"),
    get: asking("get"),
    list: asking("list"),
    entries: asking("entries"),
    send: asking("send"),
    toolResult: asking("toolResult"),
    regenerate: asking("regenerate"),
    stop: asking("stop"),
    read: asking("read"),
    setMetadata: asking("setMetadata"),
    changeMembers: asking("changeMembers"),
    compact: asking("compact"),
    archive: asking("archive"),
    unarchive: asking("unarchive"),
    remove: asking("remove"),
    join: (tenant, sessionId, place, sink) =>
      following(sink, (service) => service.join(tenant, sessionId, place, sink)),
    inbox: (tenant, user, sink) => following(sink, (service) => service.inbox(tenant, user, sink)),
  };
}
