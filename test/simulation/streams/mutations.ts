/** The fences of a log on JetStream, and how each is taken out. */
import { type Mutation, of } from "../mutation.ts";

const log = of("sessions/log/jetstream");

const list: readonly Mutation[] = [
  {
    name: "stream: behind whatever end it has",
    edits: [
      log(
        "const condition = { stream, lastSequence: offset, limitMs: publishLimitMs };",
        "const { lastSequence = offset } = (await engine.state(stream).catch(() => undefined)) ?? {};\n" +
          "    const condition = { stream, lastSequence, limitMs: publishLimitMs };",
      ),
    ],
  },
  {
    name: "stream: any ack is one of the record",
    edits: [
      log(
        "const condition = { stream, lastSequence: offset, limitMs: publishLimitMs };",
        "const { lastSequence = offset } = (await engine.state(stream).catch(() => undefined)) ?? {};\n" +
          "    const condition = { stream, lastSequence, limitMs: publishLimitMs };",
      ),
      log("answer.stream === stream && answer.sequence === offset + 1", "answer.stream === stream"),
    ],
    by: "O3",
  },
  {
    name: "stream: wrong last sequence is a fence",
    edits: [
      log(
        'return { type: "read_place", lastSequence: answer.lastSequence };',
        'return { type: "fenced" };',
      ),
    ],
  },
  {
    name: "stream: a read that finds nothing is an answer",
    edits: [
      log(
        "return { ...unknown(`nothing is at ${place} yet`), isPending: true };",
        'return { type: "fenced" };',
      ),
    ],
  },
  {
    name: "stream: whatever is at its place is the record",
    edits: [
      log(
        'return isSame(found, sent) ? { type: "committed" } : { type: "fenced" };',
        'return { type: "committed" };',
      ),
    ],
  },
  {
    name: "stream: what is unknown counts as stored",
    edits: [log("return unknown(answer.why);", 'return { type: "committed" };')],
  },
  {
    name: "stream: served before its replay has ended",
    edits: [
      log("if (gap !== undefined) throw unavailable(", "if (gap === null) throw unavailable("),
    ],
  },
  {
    name: "stream: replayed from a mark of the next owner",
    edits: [log("if (found && found.at > head.offset) throw takenSince(life);")],
  },
  {
    name: "stream: taken without a higher term",
    edits: [log("const term = seen.term + 1;", "const { term } = seen;")],
  },
  {
    name: "stream: trimmed beyond its mark",
    edits: [log("Math.min(below, mark.archived)", "at.offset")],
  },
  {
    name: "stream: sessions at work left out of what a replay finds",
    edits: [log("if (!replayed.has(header.sessionId)) busy.set(header.sessionId, header);")],
  },
];

export const streamMutations: readonly Mutation[] = list.map((each) => ({
  ...each,
  scenario: "streams",
}));
