import type { SessionService } from "./service.ts";

/** A service that is made when it is first asked for something. */
export function lazyService(make: () => SessionService): SessionService {
  const calling =
    <Name extends keyof SessionService>(name: Name) =>
    (...given: Parameters<SessionService[Name]>): ReturnType<SessionService[Name]> =>
      (make()[name] as (...all: unknown[]) => ReturnType<SessionService[Name]>)(...given);
  return {
    create: calling("create"),
    get: calling("get"),
    list: calling("list"),
    entries: calling("entries"),
    send: calling("send"),
    toolResult: calling("toolResult"),
    regenerate: calling("regenerate"),
    stop: calling("stop"),
    read: calling("read"),
    setMetadata: calling("setMetadata"),
    changeMembers: calling("changeMembers"),
    compact: calling("compact"),
    archive: calling("archive"),
    unarchive: calling("unarchive"),
    remove: calling("remove"),
    join: calling("join"),
    inbox: calling("inbox"),
  };
}
