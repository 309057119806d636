/** What keeps pods that find each other by beats right, and how each is taken out. */
import { type Mutation, of } from "../mutation.ts";

const owners = of("sessions/log/ownership");
const beats = of("sessions/log/beats");
const owner = of("sessions/log/owner");

const list: readonly Mutation[] = [
  {
    name: "beats: a read or a beat proves that a log is still the pod's",
    edits: [owners("if (!listeningNow()) each.provenMs = sentMs;", "each.provenMs = sentMs;")],
  },
  {
    name: "beats: silence counts though own beats aren't heard",
    edits: [
      beats(
        "podId === undefined || nowMs - echoSentMs <= deafMs",
        "podId === undefined || echoSentMs > -Infinity",
      ),
    ],
  },
  {
    name: "beats: nothing is proven while a log is idle",
    edits: [owner("if (!isBusy && journal.prove) occupy(storeProof(journal.prove));")],
  },
];

export const beatMutations: readonly Mutation[] = list.map((each) => ({
  ...each,
  scenario: "beats",
}));
