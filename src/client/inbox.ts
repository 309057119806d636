import type { FlotillaError } from "../base/errors.ts";
import type { InboxItem } from "../protocol/message.ts";
import type { Store } from "./store.ts";

/** The sessions of the user, followed while somebody listens. */
export type Inbox = Store<InboxSnapshot>;

export type InboxSnapshot = {
  /** As of a session. `gone`: the user may not see an inbox. */
  readonly status: "idle" | "joining" | "live" | "away" | "gone";
  /** Those where something happened last come first. */
  readonly sessions: readonly InboxItem[];
  readonly error?: FlotillaError;
};
