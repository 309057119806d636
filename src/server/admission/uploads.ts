import type { Context } from "hono";
import { FlotillaError } from "../../base/errors.ts";
import { accountIn } from "./admission.ts";

/** Requests that bring files. They take much memory or long, so that a caller has a few of them at once. */
export type Uploads = {
  /** Rejects with `overloaded` where the caller has as many under way as it may. */
  run<Result>(c: Context, act: () => Promise<Result>): Promise<Result>;
  /** The same for a request that counts only once more bytes of its body have come than one without files has. */
  runLarge<Result>(c: Context, usualBytes: number, act: () => Promise<Result>): Promise<Result>;
};

/** How many one caller may have at once. */
const maxUploads = 4;
const retryAfterMs = 1_000;

export function createUploads(): Uploads {
  const underWay = new Map<string, number>();

  /** Returns what ends it. */
  const begin = (c: Context): (() => void) => {
    const account = accountIn(c);
    const count = underWay.get(account) ?? 0;
    if (count >= maxUploads) {
      // The rest isn't read, so that nothing else can come on this connection.
      c.header("Connection", "close");
      throw new FlotillaError(
        "overloaded",
        `a caller uploads ${maxUploads} files at once: send this one when another has ended`,
        { retryAfterMs },
      );
    }
    underWay.set(account, count + 1);
    return () => {
      const left = underWay.get(account)! - 1;
      if (left === 0) underWay.delete(account);
      else underWay.set(account, left);
    };
  };

  return {
    async run(c, act) {
      const end = begin(c);
      try {
        return await act();
      } finally {
        end();
      }
    },
    async runLarge(c, usualBytes, act) {
      let end: (() => void) | undefined;
      const onBytes: OnBytes = (bytes) => {
        if (bytes > usualBytes) end ??= begin(c);
      };
      onBytes(Number(c.req.header("content-length") ?? 0));
      c.set("onBytes", onBytes);
      try {
        return await act();
      } finally {
        end?.();
      }
    },
  };
}

type OnBytes = (bytes: number) => void;

/** Tells how many bytes of a request's body have come. Throws where no more may. */
export function countBodyBytes(c: Context, bytes: number): void {
  (c.get("onBytes") as OnBytes | undefined)?.(bytes);
}
