import type { TaskHandler } from "../../tasks/task.ts";
import type { Flow } from "../builder.ts";
import { driveRun } from "./drive.ts";
import type { Machine } from "../machine.ts";

/** Whether it is a flow that can be run. */
export function isFlow(given: unknown): given is Flow {
  const { isFlow: is, parts } = (given ?? {}) as Partial<Machine>;
  return is === true && Array.isArray(parts);
}

/** A flow as a pod works with it: its runs are claimed like tasks, and driven. */
export function flowHandler(flow: Flow): TaskHandler {
  const { name, input, output, queue, concurrency, tries, version } = flow;
  const limited = queue ? { limit: queue.limit } : concurrency;
  return {
    name,
    input,
    output,
    isFlow: true,
    ...(queue && { queue }),
    ...(limited && { concurrency: limited }),
    options: tries,
    run: () => undefined,
    flow: {
      version,
      drive: (running, parts) =>
        driveRun(flow, running, parts).catch((error: unknown) => ({ type: "not_stored", error })),
    },
  };
}
