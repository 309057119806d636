/** What opens the throttle gate before the claim again, and how each is taken out. */
import { type Mutation, of } from "./mutation.ts";

const gate = of("tasks/claim/throttle-gate");
const probe = of("tasks/claim/throttle-demand");

export const throttleGateMutations: readonly Mutation[] = [
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
    name: "throttle gate: the count of blocked tasks isn't set",
    edits: [gate("    limiter.setBlockedTasks(waiting + deferred.count(limiter));\n")],
  },
  {
    name: "throttle gate: a poll whose answer was lost is the last",
    edits: [probe("      // The next poll counts again.\n", "      stopped = true;\n")],
  },
  {
    name: "throttle gate: a poll doesn't count blocked tasks",
    edits: [gate("      demandPoll.poll(maxCount);\n")],
  },
  {
    name: "worker: a lost notification is never made up for",
    edits: [
      {
        file: "src/tasks/run/worker.ts",
        find: "      loop.wake();\n      statusPublisher.publish();",
        put: "      statusPublisher.publish();",
      },
    ],
  },
];
