import { FlotillaError } from "../base/errors.ts";
import type { SessionService } from "../session/service.ts";

/** What a server answers that was started without sessions. */
export const noSessions = new Proxy({} as SessionService, {
  get: () => () => {
    throw new FlotillaError("unsupported", "this server was started without sessions");
  },
});
