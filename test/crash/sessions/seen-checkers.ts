/** What is stored and what clients have seen of it: the same everywhere, without gaps, never going back. */
import { contentOf, eventsOf, type SessionCheck } from "./evidence.ts";

/** S2: seqs are 1…n, and the header counts them. */
const misplaced: SessionCheck = ({ stored }) =>
  stored.flatMap(({ session, lastSeq, header, entries }) => {
    const gap = entries.findIndex(({ seq }, at) => seq !== at + 1);
    const counted = entries.length;
    const isCounted = lastSeq === counted && header.lastSeq === counted;
    return [
      ...(gap < 0 ? [] : [`S2: ${session} has ${entries[gap]!.seq} as its entry ${gap + 1}`]),
      ...(isCounted
        ? []
        : [`S2: ${session} has ${counted} entries, and says ${lastSeq}, ${header.lastSeq}`]),
    ];
  });

/** S2, S6: a seq means the same to all clients for ever, and is stored. */
const changed: SessionCheck = (evidence) => {
  const stored = new Map(
    evidence.stored.flatMap(({ session, entries }) =>
      entries.map((entry) => [`${session}#${entry.seq}`, contentOf(entry)]),
    ),
  );
  const wrong = eventsOf(evidence, "deliver").flatMap(({ session, client, entry }) => {
    const place = `${session}#${entry.seq}`;
    const now = stored.get(place);
    if (now === contentOf(entry)) return [];
    if (now === undefined) return [`S6: ${client} was given ${place}, which isn't stored`];
    return [`S2: ${client} was given ${contentOf(entry)} as ${place}, which is ${now}`];
  });
  return [...new Set(wrong)];
};

/** S5: on a connection, what follows the client's place comes in order and without a gap. */
const jumps: SessionCheck = ({ history }) => {
  const places = new Map<string, number>();
  return history.flatMap((event) => {
    // Nothing was restored, so there is no reason for that.
    if (event.type === "reset") return [`O6: ${event.client} was reset: ${event.reason}`];
    if (event.type !== "join" && event.type !== "deliver") return [];
    const key = `${event.on} ${event.session}`;
    if (event.type === "join") {
      places.set(key, event.lastSeq);
      return [];
    }
    const last = places.get(key)!;
    const { seq } = event.entry;
    places.set(key, Math.max(last, seq));
    if (seq <= last + 1) return [];
    return [`S5: ${event.on} was given ${seq} after ${last} of ${event.session}`];
  });
};

/**
 * S7: no client is told of a tail that is shorter than the place that it comes with. What it was only acked
 * may still be on its way to the server that it comes to.
 */
const setBack: SessionCheck = ({ history }) => {
  const places = new Map<string, number>();
  return history.flatMap((event) => {
    if (event.type !== "join" && event.type !== "joined") return [];
    const { on, lastSeq, session } = event;
    const key = `${on} ${session}`;
    if (event.type === "join") {
      places.set(key, lastSeq);
      return [];
    }
    const place = places.get(key)!;
    if (lastSeq >= place) return [];
    return [`S7: ${on} knew ${session} up to ${place}, and was told of ${lastSeq}`];
  });
};

/** S5: in the end every server gives what the store has, and every client that follows has been given it. */
const disagreeing: SessionCheck = ({ stored, reads }) =>
  reads.flatMap(({ reader, session, entries }) => {
    const own = stored.find((each) => each.session === session);
    const wanted = own?.entries.map(contentOf).join("\n");
    if (entries.map(contentOf).join("\n") === wanted) return [];
    const count = `${entries.length} entries of ${session}, the store ${own?.entries.length}`;
    return [`S5: in the end ${reader} has ${count}, or others`];
  });

export const seenChecks = [misplaced, changed, jumps, setBack, disagreeing];
