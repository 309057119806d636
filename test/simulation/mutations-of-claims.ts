/**
 * The fences of claims ahead of free slots and of claims that an enqueue in the pod's process carries,
 * and how each is taken out.
 */
import { type Mutation, of } from "./mutation.ts";

const statements = of("tasks/sql");
const ahead = of("tasks/claim/claim-ahead");
const calls = of("tasks/claim/claim");
const loop = of("tasks/claim/claim-loop");

const ownCall = "const call = callOf(request, pauses!);";
export const aheadMutations: readonly Mutation[] = [
  {
    name: "ahead: tasks begin before the pod's row says so",
    edits: [
      ahead(
        "await mark(some.at(-1)!)",
        "(void mark(some.at(-1)!), (markedPauses = parts.pausesNumber()!), true)",
      ),
    ],
  },
  {
    name: "ahead: a death counts for tasks that only waited",
    edits: [statements("case when ${isHeldBack(task)} then 0 else 1 end", "1")],
  },
  {
    name: "ahead: tasks begin though their name is paused",
    edits: [
      statements(
        "and status = 'up' and pauses = ${pauses}`",
        "and status = 'up' and ${pauses} >= 0`",
      ),
    ],
  },
  {
    name: "ahead: tasks that must not begin aren't given back",
    edits: [ahead("      rest();\n      releaseAll(some);", "      rest();")],
  },
  {
    name: "ahead: a stop doesn't give back what waits",
    edits: [ahead("stopped = true;\n      giveBack();", "stopped = true;")],
  },
];

export const handOverMutations: readonly Mutation[] = [
  {
    name: "hand-over: more than there are free slots",
    edits: [loop("permitted(freeSlotsBeside(taken()))", "permitted(freeSlotsBeside(0))")],
  },
  {
    name: "hand-over: beside one that must run alone",
    edits: [
      loop(
        "|| inFlight > 0 || runsAlone || reserved !== undefined) return;",
        "|| inFlight > 0) return;",
      ),
    ],
  },
  {
    name: "hand-over: of names that are paused",
    edits: [calls(ownCall, "const call = { ...callOf(request, pauses!), names };")],
  },
  {
    name: "hand-over: doesn't know of a pause",
    edits: [calls(ownCall, "const { pauses: _, ...call } = callOf(request, pauses!);")],
  },
  {
    name: "hand-over: lost answers aren't released",
    edits: [
      calls("          failed(error);\n          if", "          void failed;\n          if"),
    ],
  },
];
