/** What became of answers: there is one to everything, and one of every turn. */
import type { SessionCheck } from "./evidence.ts";
import { answeredBy } from "./script.ts";

/** W2: nothing goes on for ever, and nothing waits for ever. */
const endless: SessionCheck = ({ stored }) =>
  stored.flatMap(({ session, state, header }) =>
    state === "idle" && !header.busy && header.pending === 0
      ? []
      : [`W2: ${session} is ${state} in the end, and ${header.pending} wait`],
  );

/** W2: whatever a user says is answered, or it can be seen that it wasn't. */
const unanswered: SessionCheck = ({ stored }) =>
  stored.flatMap(({ session, agent, entries }) => {
    if (agent === null) return [];
    const users = entries.filter(({ role }) => role === "user");
    const seqOf = new Map(users.map(({ text, seq }) => [text, seq]));
    // An answer stands for all that was said up to what it says that it answers.
    const upTo = entries.map(({ role, outcome, text, seq }) => {
      if (role !== "assistant") return 0;
      return outcome === "completed" ? (seqOf.get(answeredBy(text) ?? "") ?? 0) : seq;
    });
    const furthest = Math.max(0, ...upTo);
    return users.flatMap(({ seq, text }) =>
      seq <= furthest ? [] : [`W2: ${text}, ${seq} of ${session}, was never answered`],
    );
  });

/** W1: a turn has one answer, and turns answer in their order. */
const answeredTwice: SessionCheck = ({ stored }) =>
  stored.flatMap(({ session, entries }) => {
    const epochs = entries.flatMap(({ epoch, role }) =>
      role === "assistant" && epoch !== null ? [epoch] : [],
    );
    return epochs.slice(1).flatMap((epoch, at) => {
      if (epoch > epochs[at]!) return [];
      return [`W1: in ${session} an answer of turn ${epoch} follows one of turn ${epochs[at]}`];
    });
  });

export const turnChecks = [endless, unanswered, answeredTwice];
