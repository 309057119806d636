import type { throttleSpecs } from "../../server/api/throttles.schema.ts";
import { type NewAct, type Answered, part, readAnswer, send } from "../api.ts";
import type { ThrottleAt } from "../facts/throttles/throttle.ts";

type Shown = Answered<typeof throttleSpecs.get>;
type EventPage = Answered<typeof throttleSpecs.events>;

/** So many throttles a page of the list has. */
const listSize = 100;
// A plot has no place for more marks, and a person reads no more changes.
export const shownEvents = 200;
const shownHolders = 200;

const pathOf = ({ name }: ThrottleAt) => `v1/throttles/${part(name)}`;
const keyIn = ({ key }: ThrottleAt) => (key === "" ? {} : { key });

export const throttleAsks = {
  list: (cursor: string | undefined, signal: AbortSignal) =>
    readAnswer<Answered<typeof throttleSpecs.list>>(
      "v1/throttles",
      { cursor, limit: listSize },
      signal,
    ),
  one: async (throttle: ThrottleAt, signal: AbortSignal) =>
    (await readAnswer<Shown>(pathOf(throttle), keyIn(throttle), signal)).throttle,
  events: async (throttle: ThrottleAt, signal: AbortSignal) => {
    const query = { ...keyIn(throttle), limit: shownEvents };
    return (await readAnswer<EventPage>(`${pathOf(throttle)}/events`, query, signal)).events;
  },
  /** Asks all pods, so that it is read only while a person looks at it. */
  holders: (throttle: ThrottleAt, signal: AbortSignal) =>
    readAnswer<Answered<typeof throttleSpecs.holders>>(
      `${pathOf(throttle)}/holders`,
      // Without a key those of all keys are meant, and with the empty one those without.
      { key: throttle.key, limit: shownHolders },
      signal,
    ),
  pin: (throttle: ThrottleAt, limit: number, act: NewAct) =>
    send<Shown>(`${pathOf(throttle)}/pin`, act, { limit, ...keyIn(throttle) }),
  unpin: (throttle: ThrottleAt, act: NewAct) =>
    send<Shown>(`${pathOf(throttle)}/unpin`, act, keyIn(throttle)),
};
