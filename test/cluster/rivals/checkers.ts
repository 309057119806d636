import { differing } from "../checkers.ts";
import type { StoredMessage } from "../log-reader.ts";
import type { Note, RivalEvidence } from "./evidence.ts";

type Of<Event extends Note["event"]> = Extract<Note, { event: Event }>;
type RivalCheck = (evidence: RivalEvidence) => string[];

/** Everything that speaks against the promises about logs on the servers. */
export function rivalViolations(evidence: RivalEvidence): string[] {
  return [...checks.flatMap((check) => check(evidence)), ...differing(evidence)];
}

/** S1: a record that was committed is stored at its place, under its term. */
const lost: RivalCheck = (evidence) =>
  notesOf(evidence, "committed").flatMap(({ rival, log, recordId, offset, term }) => {
    const found = messagesOf(evidence, log).find(({ sequence }) => sequence === offset);
    if (found?.recordId === recordId && found.term === term) return [];
    const now = found ? `${found.recordId} of term ${found.term}` : "nothing";
    return [`S1: ${rival} has committed ${recordId} at ${offset} of log ${log}, where ${now} is`];
  });

/** O3: a record that was fenced is nowhere. */
const risen: RivalCheck = (evidence) =>
  notesOf(evidence, "fenced").flatMap(({ rival, log, recordId }) => {
    const found = messagesOf(evidence, log).find((each) => each.recordId === recordId);
    if (!found) return [];
    return [`O3: ${recordId} of ${rival} was fenced, and is at ${found.sequence} of log ${log}`];
  });

/** S2: the places of a log are taken one after the other, by what was sent to them, once each. */
const misplaced: RivalCheck = (evidence) => {
  const sent = Map.groupBy(notesOf(evidence, "sent"), ({ recordId }) => recordId);
  return evidence.stored.flatMap(({ log, messages }) => {
    const gap = messages.findIndex(({ sequence }, at) => sequence !== at + 1);
    const wrong = messages.flatMap(({ recordId, sequence }) => {
      const places = sent.get(recordId) ?? [];
      if (places.some((each) => each.log === log && each.offset === sequence)) return [];
      return [`S2: ${recordId} is at ${sequence} of log ${log}, where no rival sent it`];
    });
    if (gap >= 0) wrong.push(`S2: ${messages[gap]!.sequence} is message ${gap + 1} of log ${log}`);
    return wrong;
  });
};

/** O1: terms never fall, and a term has one owner, who comes first in it. */
const usurped: RivalCheck = ({ stored }) =>
  stored.flatMap(({ log, messages }) =>
    messages.flatMap((message, at) => {
      const before = messages[at - 1];
      const { sequence, term, kind, owner } = message;
      if (before && term < before.term) return [`O1: the term of log ${log} falls at ${sequence}`];
      if (before?.term === term && before.owner === owner) return [];
      const isTaken = kind === "owner" && term === (before?.term ?? 0) + 1;
      return isTaken ? [] : [`O1: ${owner} has ${sequence} of log ${log}, and didn't take it`];
    }),
  );

/** S9: a new owner has read all records before its own, and no other. */
const misread: RivalCheck = (evidence) =>
  notesOf(evidence, "recovered").flatMap(({ rival, log, offset, records }) => {
    const wanted = messagesOf(evidence, log)
      .filter(({ sequence, kind }) => sequence <= offset && kind === "record")
      .map(({ recordId }) => recordId);
    if (wanted.join() === records.join()) return [];
    const count = `${records.length} records of log ${log} up to ${offset}`;
    return [`S9: ${rival} has read ${count}, where ${wanted.length} or others are`];
  });

const broken: RivalCheck = (evidence) =>
  notesOf(evidence, "failed").map(({ rival, why }) => `R2: ${rival} failed: ${why}`);

const checks = [lost, risen, misplaced, usurped, misread, broken];

/** What rivals lacked; nothing if they show all that they are meant to show. */
export function rivalVacuity(evidence: Pick<RivalEvidence, "notes">): string[] {
  const named = (notes: readonly { recordId: string }[]) =>
    new Set(notes.map(({ recordId }) => recordId));
  const unknown = named(notesOf(evidence, "unknown"));
  const resolved = (event: "committed" | "fenced") =>
    notesOf(evidence, event).filter(({ recordId }) => unknown.has(recordId)).length;
  const lacks = (is: boolean, what: string) => (is ? [] : [what]);
  const [sent, committed] = [notesOf(evidence, "sent"), notesOf(evidence, "committed")];
  return [
    ...lacks(committed.length >= 200, "two hundred records"),
    ...lacks(committed.length * 2 >= sent.length, "success of most records"),
    ...lacks(notesOf(evidence, "fenced").length > 0, "a record that was fenced"),
    ...lacks(notesOf(evidence, "recovered").length > 5, "logs that were taken"),
    ...lacks(resolved("committed") > 0, "an unknown outcome that was a commit"),
    ...lacks(resolved("fenced") > 0, "an unknown outcome where another's record was"),
    ...lacks(notesOf(evidence, "nothing").length > 0, "a refusal with nothing at the place"),
  ];
}

function notesOf<Event extends Note["event"]>(
  { notes }: Pick<RivalEvidence, "notes">,
  event: Event,
): Of<Event>[] {
  return notes.filter((note): note is Of<Event> => note.event === event);
}

function messagesOf({ stored }: RivalEvidence, log: number): readonly StoredMessage[] {
  return stored.find((each) => each.log === log)?.messages ?? [];
}
