import type { Clock } from "../../base/clock.ts";
import { FlotillaError } from "../../base/errors.ts";
import { maxPageBytes } from "../../base/page.ts";
import type { ServerConfig } from "../../runtime/server-config.ts";
import type { Caller } from "../auth/caller.ts";
import { createRateLimit, type RateLimit } from "../../base/token-bucket.ts";

/**
 * Limits per caller on this process: requests per second, requests at once, and bytes of answers left
 * unread. Each caller has an account: a user, a key, or the address of a caller without credentials.
 *
 * A request above a limit of its caller is refused as `overloaded`. Where the process as a whole holds
 * too many unread bytes, the caller with the most loses its oldest answer, so that callers that read
 * their answers are served whatever the others leave unread.
 */
export type CallerLimits = {
  /** Begins a request, or a socket. */
  enter(account: Account, outgoing: OutgoingResponse, options?: EnterOptions): RequestSlot;
  /** Counts a request without beginning one. */
  count(account: Account): void;
};

export type Account = { readonly kind: AccountKind; readonly id: string };
export type AccountKind = "user" | "key" | "address";

/** The connection of an answer. */
export type OutgoingResponse = {
  readonly isClosed: boolean;
  /** Bytes written to the connection and not yet passed to the network. */
  readonly unflushedBytes: number;
  /** Bytes passed to the network since the connection was opened; grows while its client reads. */
  readonly flushedBytes: number;
  cut(): void;
};

export type EnterOptions = {
  /** Whether it counts among the caller's requests at once. Default true. */
  isCounted?: boolean;
};

/** A request or a socket under way. */
export type RequestSlot = {
  /**
   * Holds so many bytes until the answer is sent. Only a read is refused where that is too much: the
   * caller of a change needs its result.
   */
  answer(bytes: number, options: { isRead: boolean }): void;
  /**
   * Sets how many bytes of an endless answer wait for the connection. Returns false where the answer
   * was cut off, because it held the most of its caller's answers.
   */
  stream(waitingBytes: number): boolean;
  leave(): void;
};

export type LimitOptions = Pick<
  ServerConfig,
  "requestsPerSecond" | "requestsAtOnce" | "unreadBytes" | "unreadBytesPerCaller" | "unreadMs"
>;

type AccountState = {
  readonly bucket: RateLimit;
  atOnce: number;
  unreadBytes: number;
  /** Answers that may be unread, oldest first. */
  readonly answers: Set<TrackedAnswer>;
};

type TrackedAnswer = {
  readonly account: AccountState;
  readonly outgoing: OutgoingResponse;
  /** Of a complete answer: its size, all of which is held until its end is sent. */
  wholeBytes: number;
  /** Of an endless answer: the bytes that wait for the connection. */
  waitingBytes: number | undefined;
  /** The bytes counted for it now, and the highest count so far. */
  heldBytes: number;
  peakBytes: number;
  /** The connection's `flushedBytes` when it last grew, and when that was. */
  flushedBytes: number;
  flushedAtMs: number;
  isOver: boolean;
};

// A program that serves many users calls with one key, and many users may share one address.
const defaultPerSecond = { user: 100, key: 10_000, address: 1_000 };
export const defaultAtOnce = { user: 64, key: 1_024, address: 1_024 };
const defaultUnreadBytes = 256 * 1024 * 1024;
const defaultUnreadBytesPerCaller = 16 * 1024 * 1024;
const defaultUnreadMs = 30_000;
// Accounts kept per kind; above it the least recently used are evicted.
const maxAccounts = 100_000;
// How many of the oldest accounts are tried for one that isn't in use.
const maxEvictionTries = 16;
const sweepMs = 1_000;
const retryAfterMs = 1_000;

export function createCallerLimits(clock: Clock, options: LimitOptions = {}): CallerLimits {
  const perSecond = { ...defaultPerSecond, ...options.requestsPerSecond };
  const maxAtOnce = { ...defaultAtOnce, ...options.requestsAtOnce };
  const { unreadBytes = defaultUnreadBytes, unreadMs = defaultUnreadMs } = options;
  const { unreadBytesPerCaller = defaultUnreadBytesPerCaller } = options;
  /** Least recently used first. A flood of one kind doesn't evict accounts of the others. */
  const accounts: Record<AccountKind, Map<string, AccountState>> = {
    user: new Map(),
    key: new Map(),
    address: new Map(),
  };
  /** Accounts with answers that may be unread. */
  const holders = new Set<AccountState>();
  let unreadOfAll = 0;
  let cancelSweep: (() => void) | undefined;

  const stateOfAccount = ({ kind, id }: Account): AccountState => {
    const known = accounts[kind];
    const rate = { perSecond: perSecond[kind], burst: 2 * perSecond[kind] };
    const account = known.get(id) ?? {
      bucket: createRateLimit(clock, rate),
      atOnce: 0,
      unreadBytes: 0,
      answers: new Set(),
    };
    known.delete(id);
    known.set(id, account);
    if (known.size > maxAccounts) evictIdle(known);
    return account;
  };

  const countRequest = (account: Account): AccountState => {
    const open = stateOfAccount(account);
    const waitMs = open.bucket.take();
    if (waitMs === 0) return open;
    const max = perSecond[account.kind];
    throw overloaded(`more than ${max} requests a second`, { requestsPerSecond: max }, waitMs);
  };

  const setHeld = (answer: TrackedAnswer, bytes: number): void => {
    const more = bytes - answer.heldBytes;
    answer.account.unreadBytes += more;
    unreadOfAll += more;
    answer.heldBytes = bytes;
    answer.peakBytes = Math.max(answer.peakBytes, bytes);
  };
  /** Updates the count. Connections don't announce what they have sent, so the old count may be high. */
  const measure = (answer: TrackedAnswer): void => {
    const { outgoing, wholeBytes, waitingBytes } = answer;
    if (outgoing.isClosed) setHeld(answer, 0);
    else if (waitingBytes === undefined) setHeld(answer, wholeBytes);
    else setHeld(answer, waitingBytes + outgoing.unflushedBytes);
  };
  const measureAll = ({ answers }: AccountState): void => {
    for (const each of answers) measure(each);
  };

  const watch = (answer: TrackedAnswer): void => {
    const { account, outgoing } = answer;
    if (account.answers.has(answer)) return;
    answer.flushedBytes = outgoing.flushedBytes;
    answer.flushedAtMs = clock.monotonic();
    account.answers.add(answer);
    holders.add(account);
    cancelSweep ??= clock.after(Math.min(sweepMs, unreadMs / 4), sweep);
  };
  const unwatch = (answer: TrackedAnswer): void => {
    const { account } = answer;
    setHeld(answer, 0);
    if (account.answers.delete(answer) && account.answers.size === 0) holders.delete(account);
    if (holders.size > 0) return;
    cancelSweep?.();
    cancelSweep = undefined;
  };
  const cut = (answer: TrackedAnswer): void => {
    answer.isOver = true;
    unwatch(answer);
    answer.outgoing.cut();
  };

  /** True when none of it is read. Sockets and the network buffer, so reads show in leaps. */
  const isStalled = (answer: TrackedAnswer): boolean => {
    const { outgoing, peakBytes } = answer;
    const { flushedBytes } = outgoing;
    const nowMs = clock.monotonic();
    if (outgoing.unflushedBytes === 0 || flushedBytes !== answer.flushedBytes) {
      answer.flushedBytes = flushedBytes;
      answer.flushedAtMs = nowMs;
      return false;
    }
    return (
      nowMs - answer.flushedAtMs >= unreadMs * Math.max(1, Math.ceil(peakBytes / maxPageBytes))
    );
  };
  const sweep = (): void => {
    cancelSweep = clock.after(Math.min(sweepMs, unreadMs / 4), sweep);
    for (const { answers } of holders) {
      for (const answer of answers) {
        measure(answer);
        // The next write of a stream watches it again.
        const isRead = answer.waitingBytes !== undefined && answer.heldBytes === 0;
        if (isRead) unwatch(answer);
        else if (isStalled(answer)) cut(answer);
      }
    }
  };

  /** Cuts answers of callers that hold more than this one. False where the space can't be made so. */
  const makeSpace = (own: AccountState, bytes: number): boolean => {
    while (unreadOfAll + bytes > unreadBytes) {
      const largest = largestOf(holders, ({ unreadBytes: held }) => held);
      if (!largest || largest.unreadBytes === 0) return true;
      const before = largest.unreadBytes;
      measureAll(largest);
      if (largest.unreadBytes < before) continue;
      if (largest === own || largest.unreadBytes <= own.unreadBytes + bytes) return false;
      for (const oldest of largest.answers) {
        if (oldest.heldBytes === 0) continue;
        cut(oldest);
        break;
      }
    }
    return true;
  };
  /** Whether the caller's answers and so many more bytes exceed its share; a single answer never does. */
  const exceedsOwnShare = (account: AccountState, bytes: number): boolean => {
    const goesOver = () =>
      account.unreadBytes > 0 && account.unreadBytes + bytes > unreadBytesPerCaller;
    if (!goesOver()) return false;
    measureAll(account);
    return goesOver();
  };

  return {
    count: (account) => void countRequest(account),
    enter(caller, outgoing, { isCounted = true } = {}) {
      const account = countRequest(caller);
      const max = maxAtOnce[caller.kind];
      if (isCounted && account.atOnce >= max)
        throw overloaded(`${max} requests are under way`, { requestsAtOnce: max });
      if (exceedsOwnShare(account, 1)) throw unreadError({ unreadBytesPerCaller });
      if (isCounted) account.atOnce++;
      const answer: TrackedAnswer = {
        account,
        outgoing,
        wholeBytes: 0,
        waitingBytes: undefined,
        heldBytes: 0,
        peakBytes: 0,
        flushedBytes: 0,
        flushedAtMs: 0,
        isOver: false,
      };
      let isLeft = false;
      return {
        answer(bytes, { isRead }) {
          if (answer.isOver || outgoing.isClosed) return;
          setHeld(answer, 0);
          if (isRead && exceedsOwnShare(account, bytes))
            throw unreadError({ unreadBytesPerCaller });
          if (!makeSpace(account, bytes) && isRead) throw unreadError({ unreadBytes });
          answer.wholeBytes = bytes;
          watch(answer);
          measure(answer);
        },
        stream(waitingBytes) {
          if (answer.isOver) return false;
          if (outgoing.isClosed) return true;
          answer.waitingBytes = waitingBytes;
          measure(answer);
          if (answer.heldBytes === 0) return true;
          watch(answer);
          while (account.answers.size > 1 && exceedsOwnShare(account, 0))
            cut(largestOf(account.answers, ({ heldBytes }) => heldBytes)!);
          if (!answer.isOver && !makeSpace(account, 0)) cut(answer);
          return !answer.isOver;
        },
        leave() {
          if (isLeft) return;
          isLeft = true;
          answer.isOver = true;
          unwatch(answer);
          if (isCounted) account.atOnce--;
        },
      };
    },
  };
}

/** A key counts as one caller, whichever user it acts for, and a user of all tenants whichever it names. */
export function accountOf({ kind, tenant, allTenants, user, keyId }: Caller): Account {
  if (kind === "user") return { kind, id: `${allTenants ? "" : tenant}\0${user}` };
  return { kind: "key", id: keyId ?? "" };
}

/** IPv6 addresses count by their /64, all of which a single caller usually has. */
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

/** Evicts the least recently used account that isn't in use. */
function evictIdle(accounts: Map<string, AccountState>): void {
  let tries = 0;
  for (const [id, account] of accounts) {
    accounts.delete(id);
    if (account.atOnce === 0 && account.answers.size === 0) return;
    accounts.set(id, account);
    if (++tries === maxEvictionTries) return;
  }
}

function largestOf<Item>(items: Iterable<Item>, bytesOf: (item: Item) => number): Item | undefined {
  let largest: Item | undefined;
  let largestBytes = -1;
  for (const item of items) {
    const bytes = bytesOf(item);
    if (bytes > largestBytes) [largest, largestBytes] = [item, bytes];
  }
  return largest;
}

function unreadError(details: { unreadBytesPerCaller: number } | { unreadBytes: number }) {
  const isOwn = "unreadBytesPerCaller" in details;
  const subject = isOwn ? "answers to earlier requests" : "too many answers of this server";
  return overloaded(`${subject} wait to be read`, details);
}

function overloaded(
  message: string,
  details: Record<string, number>,
  waitMs = retryAfterMs,
): FlotillaError {
  const options = { details, retryAfterMs: waitMs };
  return new FlotillaError("overloaded", `${message}: try again later`, options);
}
