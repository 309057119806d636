import type { Json } from "../../base/json.ts";
import type { Person } from "../../protocol/frames.ts";
import { createDigestedSet } from "../delivery/digested-set.ts";
import { asBusJson, fieldsOf, listOf, readText } from "../delivery/remote-protocol.ts";

/**
 * What processes say to each other of who has sessions open, and its tolerant reader: a pod of another
 * release may send fewer, more or other fields. What can't be read is left out, and comes again.
 */
export const peopleTopic = "session.people";

export type PeopleMessage = {
  /** The sessions are all that the sender has for the receiver; at least with the next messages. */
  readonly all: boolean;
  readonly sessions: readonly SessionPeople[];
  /** What the receiver should have by now, for comparison. */
  readonly digest: string | undefined;
  /** The receiver should send everything, since something was lost. */
  readonly again: boolean;
};

/** Everyone that the sender knows of without the receiver; undefined if it has nothing to say any more. */
export type SessionPeople = {
  readonly sessionId: string;
  readonly people: readonly Person[] | undefined;
};

export function encodePeople(message: Partial<PeopleMessage>): Json {
  const sessions = message.sessions?.map(({ sessionId, people }) => ({
    sessionId,
    people: people ?? null,
  }));
  return asBusJson({ ...message, ...(sessions && { sessions }) });
}

export function readPeople(body: unknown): PeopleMessage {
  const { all, sessions, digest, again } = fieldsOf(body);
  return {
    all: all === true,
    sessions: listOf(sessions, readSession),
    digest: readText(digest),
    again: again === true,
  };
}

/** Of which users are in which sessions. Who types isn't in it, because that ends by itself. */
export function digestOfPeople(
  sessions: Iterable<readonly [sessionId: string, users: readonly string[]]>,
): string {
  const set = createDigestedSet();
  for (const [sessionId, users] of sessions) set.add(JSON.stringify([sessionId, users]));
  return set.digest;
}

function readSession(value: unknown): SessionPeople | undefined {
  const { sessionId: id, people } = fieldsOf(value);
  const sessionId = readText(id);
  if (sessionId === undefined) return undefined;
  return { sessionId, people: Array.isArray(people) ? listOf(people, readPerson) : undefined };
}

function readPerson(value: unknown): Person | undefined {
  const { user: name, typing } = fieldsOf(value);
  const user = readText(name);
  return user === undefined ? undefined : { user, typing: typing === true };
}
