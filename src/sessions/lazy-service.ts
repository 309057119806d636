import type { Attendance, Joined, SessionService, Sink } from "./service.ts";

type CallName = Exclude<keyof SessionService, "join" | "presence" | "inbox">;
type CallResult<Name extends CallName> = Awaited<ReturnType<SessionService[Name]>>;

/** A service that is created on its first call. If it cannot be created, every call rejects. */
export function lazyService(make: () => SessionService): SessionService {
  // Not an async function: every message passes here, and would wait for one promise more.
  const call =
    <Name extends CallName>(name: Name) =>
    (...args: Parameters<SessionService[Name]>): Promise<CallResult<Name>> => {
      try {
        return (make()[name] as (...all: unknown[]) => Promise<CallResult<Name>>)(...args);
      } catch (error) {
        return Promise.reject(error as Error);
      }
    };
  const subscribe = <Kind extends Joined>(
    sink: Sink<never>,
    follow: (service: SessionService) => Kind,
  ): Kind | Attendance => {
    try {
      return follow(make());
    } catch (error) {
      sink.fail(error);
      const ready = Promise.reject(error as Error);
      ready.catch(() => {});
      return { ready, leave: () => {}, typing: () => {} };
    }
  };
  return {
    create: call("create"),
    get: call("get"),
    list: call("list"),
    entries: call("entries"),
    turns: call("turns"),
    started: call("started"),
    isStored: call("isStored"),
    fork: call("fork"),
    edit: call("edit"),
    forks: call("forks"),
    upload: call("upload"),
    send: call("send"),
    toolResult: call("toolResult"),
    signal: call("signal"),
    bring: call("bring"),
    wake: call("wake"),
    wakes: call("wakes"),
    cancelWake: call("cancelWake"),
    fireWake: call("fireWake"),
    regenerate: call("regenerate"),
    stop: call("stop"),
    read: call("read"),
    setMetadata: call("setMetadata"),
    changeMembers: call("changeMembers"),
    compact: call("compact"),
    archive: call("archive"),
    unarchive: call("unarchive"),
    remove: call("remove"),
    join: (tenant, sessionId, position, sink) =>
      subscribe(sink, (service) => service.join(tenant, sessionId, position, sink)),
    presence: (tenant, sessionId, user, sink) =>
      subscribe(sink, (service) => service.presence(tenant, sessionId, user, sink)),
    inbox: (tenant, user, sink) => subscribe(sink, (service) => service.inbox(tenant, user, sink)),
  };
}
