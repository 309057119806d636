import type { FlotillaError } from "../../base/errors.ts";

/** An error without a known code. */
export type ErrorLike = { readonly code?: string; readonly message: string };

/** The state of a client's connection. */
export type ConnectionState =
  /** Nothing is followed or sent, so there is no socket. */
  | { readonly status: "idle" }
  | { readonly status: "connecting"; readonly attempt: number }
  | { readonly status: "open"; readonly tenant: string; readonly user?: string }
  /** The last try failed; the next one follows after `retryInMs`. */
  | {
      readonly status: "waiting";
      readonly attempt: number;
      readonly retryInMs: number;
      readonly error?: ErrorLike;
    }
  /** The browser reports that there is no network. */
  | { readonly status: "offline" }
  /**
   * The credentials were refused, and renewed ones too; or, with the code `invalid_option`, there is no
   * Flotilla server at `url`. `reconnect()` tries again.
   */
  | { readonly status: "refused"; readonly error: FlotillaError }
  | { readonly status: "closed" };
