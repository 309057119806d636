import { errorFromWire, type Http } from "../client/http.ts";
import {
  type EachParts,
  type EnqueueRow,
  enqueueEach,
  type RowOutcome,
} from "../tasks/enqueue/each.ts";
import type { EnqueueOptions } from "../tasks/enqueue/options.ts";
import type { TaskContract } from "../tasks/model.ts";

type NewTask = Awaited<ReturnType<EachParts["prepare"]>>;

/** Sends rows in requests of bounded size, each row with its own outcome. */
export async function sendRows(
  http: Http,
  rows: Iterable<EnqueueRow>,
  options: Parameters<typeof enqueueEach>[1],
  note: (name: string, noWorker: boolean) => void,
) {
  type Sent = { name: string; input: unknown; options: object };
  type Answer = { outcomes: RowOutcome[]; noWorker: string[] };
  const sent = new Map<NewTask, Sent>();
  let failure: unknown;
  const prepare = ({ task, input, options: own = {} }: EnqueueRow): NewTask => {
    const row = { name: nameOf(task), input, options: withoutTrace(own) };
    // Only the size of its payload counts here; the server makes the task.
    const newTask = { name: row.name, payload: JSON.stringify(row) } as NewTask;
    sent.set(newTask, row);
    return newTask;
  };
  const insert = async (newTasks: readonly NewTask[]) => {
    const body = newTasks.map((each) => sent.get(each)!);
    sent.clear();
    try {
      const answer = await http<Answer>("POST", "/v1/tasks/bulk", { body });
      for (const name of answer.noWorker) note(name, true);
      return answer.outcomes.map((each) =>
        each.outcome === "rejected"
          ? { error: errorFromWire(each) }
          : {
              taskId: each.taskId,
              created: each.outcome === "created",
              ...(each.outcome === "replaced" && { replaced: true }),
            },
      );
    } catch (error) {
      failure = error;
      // A refused request is no fault of one of its rows, so don't send them one by one.
      throw new Error("the request failed", { cause: error });
    }
  };
  try {
    return await enqueueEach(rows, options, { prepare, insert, splits: false });
  } catch (error) {
    throw failure ?? error;
  }
}

export function nameOf(task: TaskContract | string): string {
  return typeof task === "string" ? task : task.name;
}

/** Options as JSON. The trace is in the headers of every request. */
export function withoutTrace(options: EnqueueOptions): object {
  const { trace: _, tx: __, ...sent } = options;
  return sent;
}
