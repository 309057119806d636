import type { FlotillaError } from "../../base/errors.ts";

/** Why something didn't work, in words, where no code of ours says it. */
export type ErrorLike = { readonly code?: string; readonly message: string };

/** How the one connection of a client is doing. */
export type ConnectionState =
  /** Nothing is followed or sent, so there is no socket. */
  | { readonly status: "idle" }
  | { readonly status: "connecting"; readonly attempt: number }
  | { readonly status: "open"; readonly tenant: string; readonly user?: string }
  /** The last try failed; the next one comes in a while. */
  | {
      readonly status: "waiting";
      readonly attempt: number;
      readonly retryInMs: number;
      readonly error?: ErrorLike;
    }
  /** The browser says that there is no network. */
  | { readonly status: "offline" }
  /**
   * The credentials were refused, and new ones too; or, with the code `invalid_option`, there is no
   * server of ours at `url`. `reconnect()` tries anew.
   */
  | { readonly status: "refused"; readonly error: FlotillaError }
  | { readonly status: "closed" };
