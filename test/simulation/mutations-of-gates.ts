/** What opens the gate before the claim again, and how each is taken out. */
import { type Mutation, of } from "./mutation.ts";

const gate = of("tasks/claim/throttle-gate");
const probe = of("tasks/claim/throttle-demand");

export const gateMutations: readonly Mutation[] = [
  {
    name: "throttle gate: a claim that fails keeps its permits",
    edits: [
      {
        file: "src/tasks/claim/claim-loop.ts",
        find: '      permits?.settle("failed");\n',
        put: "",
      },
    ],
  },
  {
    name: "throttle gate: permits that a claim didn't need are kept",
    edits: [gate("            limiter.returnReserved(left);\n")],
  },
  {
    name: "throttle gate: pods aren't told how much waits behind it",
    edits: [gate("    limiter.setBlockedTasks(waiting + deferred.count(limiter));\n")],
  },
  {
    name: "throttle gate: a look whose answer was lost is the last",
    edits: [probe("      // The next poll counts again.\n", "      stopped = true;\n")],
  },
  {
    name: "throttle gate: nobody looks behind it when it is polled",
    edits: [gate("      demandPoll.poll(maxCount);\n")],
  },
  {
    name: "worker: a lost hint is the last word",
    edits: [
      {
        file: "src/tasks/run/worker.ts",
        find: "      loop.wake();\n      statusPublisher.publish();",
        put: "      statusPublisher.publish();",
      },
    ],
  },
];
