import type { Clock } from "../../base/clock.ts";
import { FlotillaError } from "../../base/errors.ts";
import type { Bus } from "../../bus/bus.ts";
import type { Attendance, PresenceEvent, Sink } from "../service.ts";
import {
  digestOfPeople,
  encodePeople,
  peopleTopic,
  type PeopleMessage,
  readPeople,
  type SessionPeople,
} from "./exchange.ts";
import { asPeople, createMarks, type PersonMark, type Marks, typingMs } from "./marks.ts";

/**
 * Who has which session open, and who types there. All of it is in memory and may be lost: nothing is
 * stored, and what is wrong is right again after seconds.
 *
 * A process sends the owner of a session's log who has it open here, and the owner sends each such process
 * who else has. A message says everything about a session, so that it makes up for those lost before it.
 * Every few seconds they compare digests, which finds the rest.
 */
export type People = {
  /** Sends who is there, at once and as it changes. A user is shown as there until it leaves. */
  enter(
    sessionId: string,
    user: string | undefined,
    sink: Sink<PresenceEvent>,
  ): Omit<Attendance, "ready">;
  /** True while it is known here who has the session open. */
  has(sessionId: string): boolean;
  /** Members of the session were removed. */
  membersRemoved(sessionId: string): void;
  close(): void;
};

export type PeopleParts = {
  bus: Bus;
  clock: Clock;
  /** True when this process owns the session's log. */
  isLocal: (sessionId: string) => boolean;
  /** The pod that owns the log; undefined if none does. */
  ownerOf: (sessionId: string) => Promise<string | undefined>;
  /** The members of a session, if this process knows them. */
  membersOf: (sessionId: string) => readonly string[] | undefined;
};

type Visitor = {
  /** Undefined for one that only looks. */
  readonly mark: PersonMark | undefined;
  readonly sink: Sink<PresenceEvent>;
  /** What it was sent last. */
  shown: string | undefined;
};

/** One session that someone here has open or, where this process owns it, someone elsewhere. */
type Gathering = {
  readonly sessionId: string;
  readonly marks: Marks;
  readonly visitors: Set<Visitor>;
  /** What each process was sent last. */
  readonly sent: Map<string, { readonly text: string; readonly users: readonly string[] }>;
};

/** Changes of all sessions are sent together, and so often at most, whatever clients do. */
const sendEveryMs = 500;
/** Processes compare what they know of each other. */
const compareEveryMs = 5_000;
/** The people of a process that is silent for so long are gone. */
const goneAfterMs = 15_000;
const maxSessionsPerMessage = 100;
/** A mark of typing that has more time left isn't set anew. */
const repeatedBelowMs = 0.75 * typingMs;

export function createPeople(parts: PeopleParts): People {
  const { bus, clock, isLocal } = parts;
  const gatherings = new Map<string, Gathering>();
  const changed = new Set<Gathering>();
  const typing = new Set<Gathering>();
  /** When each process was last heard. */
  const heardMs = new Map<string, number>();
  let sentMs = -Infinity;
  let cancelSend: (() => void) | undefined;
  let cancelTyping: (() => void) | undefined;
  let cancelCompare: (() => void) | undefined;
  let closed = false;

  const open = (sessionId: string): Gathering => {
    const known = gatherings.get(sessionId);
    if (known) return known;
    const made: Gathering = {
      sessionId,
      marks: createMarks(),
      visitors: new Set(),
      sent: new Map(),
    };
    gatherings.set(sessionId, made);
    cancelCompare ??= clock.after(compareEveryMs, compare);
    return made;
  };

  const change = (gathering: Gathering): void => {
    if (closed) return;
    changed.add(gathering);
    const waitMs = Math.max(0, sentMs + sendEveryMs - clock.monotonic());
    cancelSend ??= clock.after(waitMs, flush);
  };

  const flush = (): void => {
    cancelSend = undefined;
    sentMs = clock.monotonic();
    const batch = [...changed];
    changed.clear();
    for (const gathering of batch) deliver(gathering);
    planTypingEnd();
    void exchange(batch);
  };

  /** Everyone who is a member. One that was removed may still have the session open elsewhere. */
  const peopleOf = ({ sessionId, marks }: Gathering, without?: string) => {
    const all = marks.all(clock.monotonic(), without === undefined ? {} : { without });
    const members = parts.membersOf(sessionId);
    return members ? all.filter(([user]) => members.includes(user)) : all;
  };
  /** False of a visitor whose user was removed from the session, which the caller may not know yet. */
  const maySee = ({ mark }: Visitor, members: readonly string[] | undefined) =>
    !mark || !members || members.includes(mark.user);

  const deliver = (gathering: Gathering): void => {
    const people = asPeople(peopleOf(gathering));
    if (people.some((person) => person.typing)) typing.add(gathering);
    else typing.delete(gathering);
    const text = JSON.stringify(people);
    // One object for all, so that it is encoded once.
    const event: PresenceEvent = { type: "presence", people };
    const members = parts.membersOf(gathering.sessionId);
    for (const visitor of gathering.visitors) {
      if (visitor.shown === text || !maySee(visitor, members)) continue;
      visitor.shown = text;
      if (!visitor.sink.push(event)) remove(gathering, visitor);
    }
  };

  const remove = (gathering: Gathering, visitor: Visitor): void => {
    if (!gathering.visitors.delete(visitor)) return;
    if (visitor.mark) gathering.marks.here.delete(visitor.mark);
    change(gathering);
  };

  const planTypingEnd = (): void => {
    cancelTyping?.();
    cancelTyping = undefined;
    const nowMs = clock.monotonic();
    const ends = Array.from(typing, ({ marks }) => marks.nextEndMs(nowMs) ?? nowMs);
    if (ends.length === 0) return;
    cancelTyping = clock.after(Math.max(0, Math.min(...ends) - nowMs), () => {
      cancelTyping = undefined;
      for (const gathering of typing) change(gathering);
    });
  };

  /** Sends what has changed of these sessions to their owner or, as their owner, to each source. */
  const exchange = async (batch: readonly Gathering[]): Promise<void> => {
    const owners = await Promise.all(
      batch.map(async ({ sessionId }) => {
        try {
          return isLocal(sessionId) ? undefined : await parts.ownerOf(sessionId);
        } catch {
          // The next comparison asks again.
          return undefined;
        }
      }),
    );
    if (closed) return;
    const said: { readonly to: string; readonly session: SessionPeople }[] = [];
    const say = (to: string, session: SessionPeople) => said.push({ to, session });
    batch.forEach((gathering, at) => {
      const { sessionId, marks, visitors, sent } = gathering;
      if (gatherings.get(sessionId) !== gathering) return;
      const isOwner = isLocal(sessionId);
      const sources = new Set(marks.sources());
      if (visitors.size === 0 && (!isOwner || sources.size === 0)) {
        for (const to of sent.keys()) say(to, { sessionId, people: undefined });
        forget(gathering);
        return;
      }
      const owner = owners[at];
      if (!isOwner && (owner === undefined || owner === bus.address)) return;
      const receivers = isOwner ? sources : new Set([owner!]);
      for (const to of sent.keys()) {
        if (receivers.has(to)) continue;
        say(to, { sessionId, people: undefined });
        sent.delete(to);
      }
      for (const to of receivers) {
        const people = refresh(gathering, to, isOwner);
        if (people) say(to, { sessionId, people });
      }
    });
    for (const [to, each] of Map.groupBy(said, (one) => one.to)) {
      const sessions = each.map(({ session }) => session);
      post(to, sessions, false);
    }
  };

  /** What that process hasn't been sent yet; undefined if it was. */
  const refresh = (gathering: Gathering, to: string, isOwner: boolean) => {
    const { marks, sent } = gathering;
    const marked = isOwner
      ? peopleOf(gathering, to)
      : marks.all(clock.monotonic(), { onlyHere: true });
    // With the times, so that who goes on typing is sent again before the receiver lets it end.
    const text = JSON.stringify(marked);
    if (sent.get(to)?.text === text) return undefined;
    sent.set(to, { text, users: marked.map(([user]) => user) });
    return asPeople(marked);
  };

  const post = (to: string, sessions: readonly SessionPeople[], isAll: boolean): void => {
    for (let from = 0; from === 0 || from < sessions.length; from += maxSessionsPerMessage) {
      const page = sessions.slice(from, from + maxSessionsPerMessage);
      const all = isAll && from === 0;
      bus.send(to, peopleTopic, encodePeople({ sessions: page, ...(all && { all }) }));
    }
  };

  const forget = (gathering: Gathering): void => {
    gatherings.delete(gathering.sessionId);
    changed.delete(gathering);
    typing.delete(gathering);
    if (gatherings.size > 0) return;
    heardMs.clear();
    cancelCompare?.();
    cancelCompare = undefined;
  };

  /** What a process has said counts no longer. */
  const forgetSource = (gathering: Gathering, from: string): void => {
    if (!gathering.marks.forget(from)) return;
    // Should it say something again, it gets an answer.
    gathering.sent.delete(from);
    change(gathering);
  };

  const compare = (): void => {
    cancelCompare = clock.after(compareEveryMs, compare);
    const nowMs = clock.monotonic();
    for (const [from, atMs] of heardMs) {
      if (nowMs - atMs < goneAfterMs) continue;
      heardMs.delete(from);
      for (const gathering of gatherings.values()) forgetSource(gathering, from);
    }
    // Their logs may have moved.
    void exchange([...gatherings.values()]).then(() => {
      if (closed) return;
      const all = [...gatherings.values()].flatMap(({ sessionId, sent }) =>
        Array.from(sent, ([to, { users }]) => ({ to, session: [sessionId, users] as const })),
      );
      for (const [to, each] of Map.groupBy(all, (one) => one.to)) {
        const digest = digestOfPeople(each.map(({ session }) => session));
        bus.send(to, peopleTopic, encodePeople({ digest }));
      }
    });
  };

  const sendAllAgain = (to: string): void => {
    const sessions: SessionPeople[] = [];
    for (const gathering of gatherings.values()) {
      if (!gathering.sent.delete(to)) continue;
      const people = refresh(gathering, to, isLocal(gathering.sessionId));
      if (people) sessions.push({ sessionId: gathering.sessionId, people });
    }
    post(to, sessions, true);
  };

  const receive = (message: PeopleMessage, from: string): void => {
    const nowMs = clock.monotonic();
    if (message.again) sendAllAgain(from);
    const named = new Set(message.sessions.map(({ sessionId }) => sessionId));
    for (const gathering of message.all ? gatherings.values() : []) {
      if (!named.has(gathering.sessionId)) forgetSource(gathering, from);
    }
    for (const { sessionId, people } of message.sessions) {
      const isOwner = isLocal(sessionId);
      const known = gatherings.get(sessionId);
      if (!people) {
        if (known) forgetSource(known, from);
        continue;
      }
      // Of no use here: its sender takes this process for the owner, and learns soon who is.
      const gathering = known ?? (isOwner ? open(sessionId) : undefined);
      if (!gathering) continue;
      // The owner says everything that another one has said before.
      for (const other of isOwner ? [] : [...gathering.marks.sources()]) {
        if (other !== from) gathering.marks.forget(other);
      }
      gathering.marks.put(from, people, nowMs);
      change(gathering);
    }
    if (gatherings.size > 0) heardMs.set(from, nowMs);
    if (message.digest === undefined) return;
    const known = [...gatherings.values()].flatMap(({ sessionId, marks }) => {
      const users = marks.usersOf(from);
      return users ? [[sessionId, users] as const] : [];
    });
    if (digestOfPeople(known) !== message.digest) {
      bus.send(from, peopleTopic, encodePeople({ again: true }));
    }
  };

  const unserve = bus.serve(peopleTopic, (body, from) => {
    if (!closed) receive(readPeople(body), from);
    return null;
  });

  return {
    enter(sessionId, user, sink) {
      if (closed) throw new FlotillaError("closed", "this pod is shutting down");
      const gathering = open(sessionId);
      const mark = user === undefined ? undefined : { user, typingUntilMs: 0 };
      const visitor: Visitor = { mark, sink, shown: undefined };
      gathering.visitors.add(visitor);
      if (mark) gathering.marks.here.add(mark);
      change(gathering);
      return {
        typing(isTyping) {
          if (!mark || !gathering.visitors.has(visitor)) return;
          const leftMs = mark.typingUntilMs - clock.monotonic();
          // Repeated sooner, it changes nothing.
          if (isTyping ? leftMs > repeatedBelowMs : leftMs <= 0) return;
          mark.typingUntilMs = isTyping ? clock.monotonic() + typingMs : 0;
          change(gathering);
        },
        leave: () => remove(gathering, visitor),
      };
    },
    has: (sessionId) => gatherings.has(sessionId),
    membersRemoved(sessionId) {
      const gathering = gatherings.get(sessionId);
      if (gathering) change(gathering);
    },
    close() {
      closed = true;
      cancelSend?.();
      cancelTyping?.();
      cancelCompare?.();
      unserve();
      gatherings.clear();
    },
  };
}
