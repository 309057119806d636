import type { Person } from "../../protocol/frames.ts";

/** How long a user is shown as typing after the client has said so. */
export const typingMs = 6_000;
/** As many as a session has members. Marks of more, from members that were removed, aren't shown. */
const maxShown = 100;

/** One place where a user has the session open: a connection to this process. */
export type PersonMark = { readonly user: string; typingUntilMs: number };

/** A user, and until when they type; 0 if they don't. */
type Marked = readonly [user: string, typingUntilMs: number];

/** Who has one session open: here, and as other processes say it. Knows no time but what it is given. */
export type Marks = {
  /** Of this process. */
  readonly here: Set<PersonMark>;
  /** What another process says, in place of what it said before. */
  put(from: string, people: readonly Person[], nowMs: number): void;
  /** False if it has said nothing. */
  forget(from: string): boolean;
  /** The other processes that have said something. */
  sources(): Iterable<string>;
  /** The users of another process, as it said them; undefined if it has said nothing. */
  usersOf(from: string): readonly string[] | undefined;
  /** Everyone, by name, or without what one process says, or only those of this process. */
  all(nowMs: number, which?: { without?: string; onlyHere?: boolean }): readonly Marked[];
  /** When the next one stops typing by itself; undefined if no one does. */
  nextEndMs(nowMs: number): number | undefined;
};

export function createMarks(): Marks {
  const here = new Set<PersonMark>();
  const elsewhere = new Map<string, Map<string, number>>();

  return {
    here,
    put(from, people, nowMs) {
      const users = people
        .slice(0, maxShown)
        .map(({ user, typing }): Marked => [user, typing ? nowMs + typingMs : 0]);
      elsewhere.set(from, new Map(users));
    },
    forget: (from) => elsewhere.delete(from),
    sources: () => elsewhere.keys(),
    usersOf(from) {
      const users = elsewhere.get(from);
      return users && [...users.keys()];
    },
    all(nowMs, { without, onlyHere = false } = {}) {
      const found = new Map<string, number>();
      const add = (user: string, typingUntilMs: number) => {
        const untilMs = typingUntilMs > nowMs ? typingUntilMs : 0;
        found.set(user, Math.max(untilMs, found.get(user) ?? 0));
      };
      for (const { user, typingUntilMs } of here) add(user, typingUntilMs);
      for (const [from, users] of onlyHere ? [] : elsewhere) {
        if (from !== without) for (const [user, untilMs] of users) add(user, untilMs);
      }
      return [...found].toSorted(([a], [b]) => (a < b ? -1 : 1)).slice(0, maxShown);
    },
    nextEndMs(nowMs) {
      const ends = [...here].map(({ typingUntilMs }) => typingUntilMs);
      for (const users of elsewhere.values()) ends.push(...users.values());
      const next = Math.min(...ends.filter((endMs) => endMs > nowMs));
      return next === Infinity ? undefined : next;
    },
  };
}

/** As others see them. */
export function asPeople(marked: readonly Marked[]): readonly Person[] {
  return marked.map(([user, typingUntilMs]) => ({ user, typing: typingUntilMs > 0 }));
}
