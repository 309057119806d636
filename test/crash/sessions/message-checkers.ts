/** What became of clients' messages: each is stored once, where its ack put it, in its order. */
import { eventsOf, type Of, type SessionCheck, type SessionEvidence } from "./evidence.ts";
import type { HistoryEvent } from "./history.ts";

const nameOf = ({ session, id }: { session: string; id: string }) => `${id} in ${session}`;

/** S1: what was acked is stored, where the ack said. */
const lost: SessionCheck = (evidence) => {
  const places = placesOf(evidence);
  return eventsOf(evidence, "ok").flatMap((ok) => {
    const seqs = places.get(nameOf(ok)) ?? [];
    if (seqs.length === 0) return [`S1: ${nameOf(ok)} was acked at ${ok.seq} and is lost`];
    if (seqs.includes(ok.seq)) return [];
    return [`S1: ${nameOf(ok)} was acked at ${ok.seq} and is at ${seqs.join()}`];
  });
};

/** S1: what is stored is what was sent. */
const altered: SessionCheck = (evidence) => {
  const sent = new Map(eventsOf(evidence, "invoke").map((each) => [nameOf(each), each.text]));
  return evidence.stored.flatMap(({ session, entries }) =>
    entries.flatMap(({ clientId, text }) => {
      const name = clientId === null ? undefined : nameOf({ session, id: clientId });
      const words = name === undefined ? undefined : sent.get(name);
      if (words === undefined || words === text) return [];
      return [`S1: ${name} says ${JSON.stringify(text)}, and ${JSON.stringify(words)} was sent`];
    }),
  );
};

/** S2, O2: nothing is stored that no client sent, or that was refused for certain at its first try. */
const phantoms: SessionCheck = (evidence) => {
  const invoked = new Set(eventsOf(evidence, "invoke").map(nameOf));
  const refusals = Map.groupBy(eventsOf(evidence, "refused"), nameOf);
  return [...placesOf(evidence)].flatMap(([name, seqs]) => {
    if (!invoked.has(name))
      return [`S2: ${name} is stored at ${seqs.join()}, and no client sent it`];
    const all = refusals.get(name) ?? [];
    const isRefused = all.length === 1 && all[0]!.final;
    return isRefused ? [`O2: ${name} was refused, and is stored at ${seqs.join()}`] : [];
  });
};

/** S3: an id has one place in the store. */
const storedTwice: SessionCheck = (evidence) =>
  [...placesOf(evidence)].flatMap(([name, seqs]) =>
    seqs.length > 1 ? [`S3: ${name} is stored ${seqs.length} times, at ${seqs.join()}`] : [],
  );

/** S3: every ack of an id names the same place, and no place is named to two. */
const ackedTwice: SessionCheck = (evidence) => {
  const acks = eventsOf(evidence, "ok");
  const byName = [...Map.groupBy(acks, nameOf)].flatMap(([name, all]) => {
    const seqs = new Set(all.map(({ seq }) => seq));
    return seqs.size > 1 ? [`S3: ${name} was acked at ${[...seqs].join()}`] : [];
  });
  const byPlace = Map.groupBy(acks, ({ session, seq }) => `${session}#${seq}`);
  const shared = [...byPlace].flatMap(([place, all]) => {
    const ids = new Set(all.map(({ id }) => id));
    return ids.size > 1 ? [`S3: ${place} was given to ${[...ids].join(" and ")}`] : [];
  });
  return [...byName, ...shared];
};

/** S4: what was acked before something else was said has the lower seq. */
const reordered: SessionCheck = (evidence) =>
  bySession(evidence).flatMap(([session, events]) => {
    const before = new Map<string, Of<"ok"> | undefined>();
    let highest: Of<"ok"> | undefined;
    return events.flatMap((event) => {
      if (event.type === "invoke") before.set(event.id, highest);
      if (event.type !== "ok") return [];
      const earlier = before.get(event.id);
      if (!highest || event.seq > highest.seq) highest = event;
      if (!earlier || earlier.seq < event.seq) return [];
      const order = `${earlier.id} was acked at ${earlier.seq} before ${event.id} was said`;
      return [`S4: ${order}, which is at ${event.seq} of ${session}`];
    });
  });

/** What a connection sends to a session is stored in that order, where nothing had to be sent again. */
const outOfTurn: SessionCheck = (evidence) =>
  bySession(evidence).flatMap(([session, events]) => {
    const acks = new Map(
      events.flatMap((event) => (event.type === "ok" ? [[event.id, event] as const] : [])),
    );
    const smooth = events.filter(
      (event): event is Of<"invoke"> =>
        event.type === "invoke" && event.on !== "none" && acks.get(event.id)?.tries === 1,
    );
    return [...Map.groupBy(smooth, ({ on }) => on)].flatMap(([on, all]) =>
      all.slice(1).flatMap(({ id }, at) => {
        const [one, next] = [acks.get(all[at]!.id)!, acks.get(id)!];
        if (one.seq < next.seq) return [];
        return [`S4: ${on} sent ${one.id} before ${id}, and they are turned round in ${session}`];
      }),
    );
  });

export const messageChecks = [
  lost,
  altered,
  phantoms,
  storedTwice,
  ackedTwice,
  reordered,
  outOfTurn,
];

function placesOf({ stored }: SessionEvidence): Map<string, number[]> {
  const places = new Map<string, number[]>();
  for (const { session, entries } of stored) {
    for (const { clientId, seq } of entries) {
      if (clientId === null) continue;
      const name = nameOf({ session, id: clientId });
      places.set(name, [...(places.get(name) ?? []), seq]);
    }
  }
  return places;
}

function bySession({ history }: SessionEvidence): [string, HistoryEvent[]][] {
  const named = history.filter((event) => "session" in event);
  return [...Map.groupBy(named, ({ session }) => session)];
}
