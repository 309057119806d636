import type { Clock } from "../base/clock.ts";
import { FlotillaError } from "../base/errors.ts";
import { pageBytes } from "../base/page.ts";
import type { ServerConfig } from "../runtime/server-config.ts";
import type { Caller } from "./auth/caller.ts";
import { type Bucket, createBucket } from "./bucket.ts";

/**
 * What callers may ask of this process: how often, how much at once, and how many bytes of answers they
 * may leave unread. Each caller has an account: a user, a key, or the address of a caller that hasn't
 * said who it is. What goes over a limit is refused as `overloaded`.
 */
export type CallerLimits = {
  /** Begins a request. */
  enter(account: Account): Visit;
  /** Counts one more without beginning anything. */
  count(account: Account): void;
};

export type Account = { readonly kind: AccountKind; readonly id: string };
export type AccountKind = "user" | "key" | "address";

/** A request that is under way, until its answer is sent or its connection is gone. */
export type Visit = {
  /**
   * So many bytes of its answer wait to be read now. Only a read is refused where that is too much: what
   * was done has to be told. `cut` is called if nothing of it is read for too long.
   */
  answer(bytes: number, options: { isRead: boolean; cut: () => void }): void;
  leave(): void;
};

export type LimitOptions = Pick<
  ServerConfig,
  "requestsPerSecond" | "requestsAtOnce" | "unreadBytes" | "unreadBytesPerCaller" | "unreadMs"
>;

// A program that serves many users calls with one key, and one address may stand for many of them.
const usualPerSecond = { user: 100, key: 10_000, address: 1_000 };
const usualAtOnce = { user: 64, key: 1_024, address: 1_024 };
const usualUnreadBytes = 256 * 1024 * 1024;
const usualUnreadBytesPerCaller = 16 * 1024 * 1024;
const usualUnreadMs = 30_000;
// Callers of the last moments are remembered; of more than these, those that were heard first are not.
const accountsMost = 100_000;
const retryAfterMs = 1_000;

type Open = { readonly bucket: Bucket; atOnce: number; unread: number };

export function createCallerLimits(clock: Clock, options: LimitOptions = {}): CallerLimits {
  const perSecond = { ...usualPerSecond, ...options.requestsPerSecond };
  const mostAtOnce = { ...usualAtOnce, ...options.requestsAtOnce };
  const { unreadBytes = usualUnreadBytes, unreadMs = usualUnreadMs } = options;
  const { unreadBytesPerCaller = usualUnreadBytesPerCaller } = options;
  /** In the order in which they were last heard. */
  const accounts = new Map<string, Open>();
  let unreadOfAll = 0;

  const opened = ({ kind, id }: Account): Open => {
    const key = `${kind} ${id}`;
    const rate = { perSecond: perSecond[kind], burst: 2 * perSecond[kind] };
    const account = accounts.get(key) ?? {
      bucket: createBucket(clock, rate),
      atOnce: 0,
      unread: 0,
    };
    accounts.delete(key);
    accounts.set(key, account);
    if (accounts.size > accountsMost) accounts.delete(accounts.keys().next().value!);
    return account;
  };

  const counted = (account: Account): Open => {
    const open = opened(account);
    const waitMs = open.bucket.take();
    if (waitMs === 0) return open;
    const most = perSecond[account.kind];
    throw overloaded(`more than ${most} requests a second`, { requestsPerSecond: most }, waitMs);
  };

  /** An answer that takes more than there is room for can still be had while no other waits. */
  const checkUnread = (account: Open, held: number, bytes: number): void => {
    const others = account.unread - held;
    if (others > 0 && others + bytes > unreadBytesPerCaller)
      throw overloaded("answers to earlier requests wait to be read", { unreadBytesPerCaller });
    const othersOfAll = unreadOfAll - held;
    if (othersOfAll > 0 && othersOfAll + bytes > unreadBytes)
      throw overloaded("too many answers of this server wait to be read", { unreadBytes });
  };

  return {
    count: (account) => void counted(account),
    enter(who) {
      const account = counted(who);
      const most = mostAtOnce[who.kind];
      if (account.atOnce >= most)
        throw overloaded(`${most} requests are under way`, { requestsAtOnce: most });
      checkUnread(account, 0, 1);
      account.atOnce++;
      let held = 0;
      let cancel = () => {};
      let isOver = false;
      return {
        answer(bytes, { isRead, cut }) {
          if (isOver) return;
          if (isRead && bytes > held) checkUnread(account, held, bytes);
          const isStalled = held > 0 && bytes >= held;
          account.unread += bytes - held;
          unreadOfAll += bytes - held;
          held = bytes;
          if (isStalled) return;
          cancel();
          // A large answer takes a slow reader longer.
          cancel = clock.after(unreadMs * Math.ceil(bytes / pageBytes), () => held > 0 && cut());
        },
        leave() {
          if (isOver) return;
          isOver = true;
          cancel();
          account.atOnce--;
          account.unread -= held;
          unreadOfAll -= held;
        },
      };
    },
  };
}

/** A key counts as one caller, whichever user it acts for. */
export function accountOf({ kind, tenant, user, keyId }: Caller): Account {
  if (kind === "user") return { kind, id: `${tenant}\0${user}` };
  return { kind: "key", id: keyId ?? "" };
}

/** Of IPv6 the first half: whoever has one address has all that share it. */
export function accountOfAddress(address: string | undefined): Account {
  return { kind: "address", id: addressRange(address ?? "") };
}

export function addressRange(address: string): string {
  const mapped = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(address)?.[1];
  if (mapped !== undefined || !address.includes(":")) return mapped ?? address;
  const [before = "", after] = address.split("%")[0]!.split("::");
  const head = before === "" ? [] : before.split(":");
  const tail = after === undefined || after === "" ? [] : after.split(":");
  const zeros = Array.from({ length: Math.max(0, 8 - head.length - tail.length) }, () => "0");
  const groups = after === undefined ? head : [...head, ...zeros, ...tail];
  return `${groups.slice(0, 4).join(":")}::/64`;
}

function overloaded(
  message: string,
  details: Record<string, number>,
  waitMs = retryAfterMs,
): FlotillaError {
  const options = { details, retryAfterMs: waitMs };
  return new FlotillaError("overloaded", `${message}: try again later`, options);
}
