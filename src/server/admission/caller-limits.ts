import type { Clock } from "../../base/clock.ts";
import { FlotillaError } from "../../base/errors.ts";
import { pageBytes } from "../../base/page.ts";
import type { ServerConfig } from "../../runtime/server-config.ts";
import type { Caller } from "../auth/caller.ts";
import { type Bucket, createBucket } from "../../base/token-bucket.ts";

/**
 * What callers may ask of this process: how often, how much at once, and how many bytes of answers they
 * may leave unread. Each caller has an account: a user, a key, or the address of a caller that hasn't
 * said who it is.
 *
 * A request that goes over a limit of its caller is refused as `overloaded`. Where the process as a whole
 * holds too much, the caller that holds the most loses its oldest answer, so that a caller that reads its
 * answers is served whatever the others leave unread.
 */
export type CallerLimits = {
  /** Begins a request, or a socket. */
  enter(account: Account, sending: Sending, options?: EnterOptions): Visit;
  /** Counts one more without beginning anything. */
  count(account: Account): void;
};

export type Account = { readonly kind: AccountKind; readonly id: string };
export type AccountKind = "user" | "key" | "address";

/** The connection of an answer, as far as that answer is concerned. */
export type Sending = {
  readonly isClosed: boolean;
  /** What the connection was given and hasn't passed to the network yet. */
  readonly unflushedBytes: number;
  /** What it has passed to the network since it was opened, which grows while its client reads. */
  readonly flushedBytes: number;
  cut(): void;
};

export type EnterOptions = {
  /** Whether it counts among the requests of its caller that are under way. Default true. */
  isCounted?: boolean;
};

/** A request or a socket that is under way. */
export type Visit = {
  /**
   * So many bytes are kept until its answer is sent. Only a read is refused where that is too much: what
   * was done has to be told.
   */
  answer(bytes: number, options: { isRead: boolean }): void;
  /**
   * So many bytes of an answer without end wait for the connection to take them. False where it was cut
   * off, since of its caller's answers it held the most.
   */
  stream(waitingBytes: number): boolean;
  leave(): void;
};

export type LimitOptions = Pick<
  ServerConfig,
  "requestsPerSecond" | "requestsAtOnce" | "unreadBytes" | "unreadBytesPerCaller" | "unreadMs"
>;

// A program that serves many users calls with one key, and one address may stand for many of them.
const usualPerSecond = { user: 100, key: 10_000, address: 1_000 };
export const usualAtOnce = { user: 64, key: 1_024, address: 1_024 };
const usualUnreadBytes = 256 * 1024 * 1024;
const usualUnreadBytesPerCaller = 16 * 1024 * 1024;
const usualUnreadMs = 30_000;
// Callers of the last moments are remembered; of more than these of a kind, those that were heard first
// are not.
const accountsMost = 100_000;
// How many of the oldest accounts are looked at for one that isn't in use.
const looksMost = 16;
const sweepMs = 1_000;
const retryAfterMs = 1_000;

type Open = {
  readonly bucket: Bucket;
  atOnce: number;
  unreadBytes: number;
  /** Answers that may wait to be read, the oldest first. */
  readonly answers: Set<Answer>;
};

type Answer = {
  readonly account: Open;
  readonly sending: Sending;
  /** Of an answer that was made whole: its size, all of which is kept until the end of it is sent. */
  wholeBytes: number;
  /** Of an answer without end: what waits before the connection. */
  waitingBytes: number | undefined;
  /** What is counted of it now, and the most that was. */
  heldBytes: number;
  mostBytes: number;
  /** What the connection had sent when it was last seen to send, and when that was. */
  flushedBytes: number;
  flushedAtMs: number;
  isOver: boolean;
};

export function createCallerLimits(clock: Clock, options: LimitOptions = {}): CallerLimits {
  const perSecond = { ...usualPerSecond, ...options.requestsPerSecond };
  const mostAtOnce = { ...usualAtOnce, ...options.requestsAtOnce };
  const { unreadBytes = usualUnreadBytes, unreadMs = usualUnreadMs } = options;
  const { unreadBytesPerCaller = usualUnreadBytesPerCaller } = options;
  /** In the order in which they were last heard. A flood of one kind doesn't push out the others. */
  const accounts: Record<AccountKind, Map<string, Open>> = {
    user: new Map(),
    key: new Map(),
    address: new Map(),
  };
  /** Accounts of which answers may wait to be read. */
  const holders = new Set<Open>();
  let unreadOfAll = 0;
  let cancelSweep: (() => void) | undefined;

  const opened = ({ kind, id }: Account): Open => {
    const known = accounts[kind];
    const rate = { perSecond: perSecond[kind], burst: 2 * perSecond[kind] };
    const account = known.get(id) ?? {
      bucket: createBucket(clock, rate),
      atOnce: 0,
      unreadBytes: 0,
      answers: new Set(),
    };
    known.delete(id);
    known.set(id, account);
    if (known.size > accountsMost) forgetOne(known);
    return account;
  };

  const counted = (account: Account): Open => {
    const open = opened(account);
    const waitMs = open.bucket.take();
    if (waitMs === 0) return open;
    const most = perSecond[account.kind];
    throw overloaded(`more than ${most} requests a second`, { requestsPerSecond: most }, waitMs);
  };

  const hold = (answer: Answer, bytes: number): void => {
    const more = bytes - answer.heldBytes;
    answer.account.unreadBytes += more;
    unreadOfAll += more;
    answer.heldBytes = bytes;
    answer.mostBytes = Math.max(answer.mostBytes, bytes);
  };
  /** Counts what is held now. Connections don't tell when they have sent something, so it may be less. */
  const measure = (answer: Answer): void => {
    const { sending, wholeBytes, waitingBytes } = answer;
    if (sending.isClosed) hold(answer, 0);
    else if (waitingBytes === undefined) hold(answer, wholeBytes);
    else hold(answer, waitingBytes + sending.unflushedBytes);
  };
  const measureAll = ({ answers }: Open): void => {
    for (const each of answers) measure(each);
  };

  const watch = (answer: Answer): void => {
    const { account, sending } = answer;
    if (account.answers.has(answer)) return;
    answer.flushedBytes = sending.flushedBytes;
    answer.flushedAtMs = clock.monotonic();
    account.answers.add(answer);
    holders.add(account);
    cancelSweep ??= clock.after(Math.min(sweepMs, unreadMs / 4), sweep);
  };
  const unwatch = (answer: Answer): void => {
    const { account } = answer;
    hold(answer, 0);
    if (account.answers.delete(answer) && account.answers.size === 0) holders.delete(account);
    if (holders.size > 0) return;
    cancelSweep?.();
    cancelSweep = undefined;
  };
  const cut = (answer: Answer): void => {
    answer.isOver = true;
    unwatch(answer);
    answer.sending.cut();
  };

  /** Whether nothing of it is read. Sockets and the network hold some, so that reads show in leaps. */
  const isStalled = (answer: Answer): boolean => {
    const { sending, mostBytes } = answer;
    const { flushedBytes } = sending;
    const nowMs = clock.monotonic();
    if (sending.unflushedBytes === 0 || flushedBytes !== answer.flushedBytes) {
      answer.flushedBytes = flushedBytes;
      answer.flushedAtMs = nowMs;
      return false;
    }
    return nowMs - answer.flushedAtMs >= unreadMs * Math.max(1, Math.ceil(mostBytes / pageBytes));
  };
  const sweep = (): void => {
    cancelSweep = clock.after(Math.min(sweepMs, unreadMs / 4), sweep);
    for (const { answers } of holders) {
      for (const answer of answers) {
        measure(answer);
        // A stream is watched again with the next that it sends.
        const isRead = answer.waitingBytes !== undefined && answer.heldBytes === 0;
        if (isRead) unwatch(answer);
        else if (isStalled(answer)) cut(answer);
      }
    }
  };

  /** Where all callers hold too much: takes from those that hold more than this one. False: there is none. */
  const makeRoom = (own: Open, bytes: number): boolean => {
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
  /** Whether the caller's answers, with so many bytes more, are too many; one alone never is. */
  const isTooMuch = (account: Open, bytes: number): boolean => {
    const goesOver = () =>
      account.unreadBytes > 0 && account.unreadBytes + bytes > unreadBytesPerCaller;
    if (!goesOver()) return false;
    measureAll(account);
    return goesOver();
  };

  return {
    count: (account) => void counted(account),
    enter(who, sending, { isCounted = true } = {}) {
      const account = counted(who);
      const most = mostAtOnce[who.kind];
      if (isCounted && account.atOnce >= most)
        throw overloaded(`${most} requests are under way`, { requestsAtOnce: most });
      if (isTooMuch(account, 1)) throw tooMuchOf({ unreadBytesPerCaller });
      if (isCounted) account.atOnce++;
      const answer: Answer = {
        account,
        sending,
        wholeBytes: 0,
        waitingBytes: undefined,
        heldBytes: 0,
        mostBytes: 0,
        flushedBytes: 0,
        flushedAtMs: 0,
        isOver: false,
      };
      let isLeft = false;
      return {
        answer(bytes, { isRead }) {
          if (answer.isOver || sending.isClosed) return;
          hold(answer, 0);
          if (isRead && isTooMuch(account, bytes)) throw tooMuchOf({ unreadBytesPerCaller });
          if (!makeRoom(account, bytes) && isRead) throw tooMuchOf({ unreadBytes });
          answer.wholeBytes = bytes;
          watch(answer);
          measure(answer);
        },
        stream(waitingBytes) {
          if (answer.isOver) return false;
          if (sending.isClosed) return true;
          answer.waitingBytes = waitingBytes;
          measure(answer);
          if (answer.heldBytes === 0) return true;
          watch(answer);
          while (account.answers.size > 1 && isTooMuch(account, 0))
            cut(largestOf(account.answers, ({ heldBytes }) => heldBytes)!);
          if (!answer.isOver && !makeRoom(account, 0)) cut(answer);
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

/** Forgets the caller that was heard first of those that aren't in use. */
function forgetOne(accounts: Map<string, Open>): void {
  let looks = 0;
  for (const [id, account] of accounts) {
    accounts.delete(id);
    if (account.atOnce === 0 && account.answers.size === 0) return;
    accounts.set(id, account);
    if (++looks === looksMost) return;
  }
}

function largestOf<Item>(items: Iterable<Item>, bytesOf: (item: Item) => number): Item | undefined {
  let largest: Item | undefined;
  let most = -1;
  for (const item of items) {
    const bytes = bytesOf(item);
    if (bytes > most) [largest, most] = [item, bytes];
  }
  return largest;
}

/** A key counts as one caller, whichever user it acts for. */
export function accountOf({ kind, tenant, user, keyId }: Caller): Account {
  if (kind === "user") return { kind, id: `${tenant}\0${user}` };
  return { kind: "key", id: keyId ?? "" };
}

/** Of IPv6 the first half: a caller with one address has all that share it. */
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

function tooMuchOf(details: { unreadBytesPerCaller: number } | { unreadBytes: number }) {
  const isOwn = "unreadBytesPerCaller" in details;
  const whose = isOwn ? "answers to earlier requests" : "too many answers of this server";
  return overloaded(`${whose} wait to be read`, details);
}

function overloaded(
  message: string,
  details: Record<string, number>,
  waitMs = retryAfterMs,
): FlotillaError {
  const options = { details, retryAfterMs: waitMs };
  return new FlotillaError("overloaded", `${message}: try again later`, options);
}
