import { hasCode, messageOf, snooze, unstorableCodes } from "../base/errors.ts";
import type { Ids } from "../base/ids.ts";
import type { Json } from "../base/json.ts";
import type { SessionService } from "../sessions/service.ts";
import type { LaterTurn, PrepareLater } from "../sessions/turns/later.ts";
import { contractOf, type LaterWait } from "../steps/later.ts";
import {
  prepareLoggedTasks,
  type StartedTaskOptions,
  type TaskToStart,
} from "../tasks/enqueue/logged-tasks.ts";
import type { TaskContext, TaskContract, TaskHandler } from "../tasks/model.ts";
import type { Task } from "../tasks/rows.ts";
import { task } from "../tasks/task.ts";
import { activeTrace } from "../tasks/trace.ts";

/** The task that brings an output to the tool call that waits for it. */
export const laterTaskName = "flotilla:later";

type Output = { readonly output: Json } | { readonly errorText: string };

/** The input of that task. */
type Late = LaterTurn & {
  readonly toolCallId: string;
  /** What it brings. Undefined if that is the result of the task that it comes after. */
  readonly result?: Output;
  /** The name of that task. */
  readonly child?: string;
};

/** The store may be away for hours, and nothing else brings the output. */
const attempts = 50;
const firstSnoozeMs = 250;
const maxSnoozeMs = 30_000;

/**
 * What a tool call waits for: the task or run itself, a task after it that brings its result, and a delayed
 * one for the time or the timeout. They start when the step of the call is stored, in the same record.
 */
export function createPrepareLater(parts: { ids: Ids; maxPayloadBytes: number }): PrepareLater {
  return async ({ sessionId, tenant, epoch, agent, messageId }, { toolCallId, key }, wait) => {
    const call: Late = { sessionId, tenant, epoch, agent, messageId, toolCallId };
    const rows: TaskToStart[] = [];
    const bring = (ref: string, more: Partial<Late>, options: StartedTaskOptions) => ({
      ref,
      task: laterTaskName,
      input: { ...call, ...more },
      options: { ...options, key: `${key}/${ref}` },
    });
    if (wait.type === "child") {
      const task = contractOf(wait) as TaskContract;
      rows.push({ ref: "child", task, input: wait.input, options: { key } });
      const ended = bring("ended", { child: wait.name }, { afterFailed: "run" });
      rows.push({ ...ended, after: ["child"] });
    }
    if (wait.type === "time") {
      const { afterMs: delayMs, output } = wait;
      rows.push(bring("time", { result: { output } }, { delayMs }));
    } else if (wait.timeoutMs !== undefined) {
      const { timeoutMs: delayMs } = wait;
      const errorText = lateText(wait, delayMs);
      rows.push(bring("timeout", { result: { errorText } }, { delayMs }));
    }
    const origin = { id: sessionId, what: "session" } as const;
    return prepareLoggedTasks(rows, { ...parts, tenant, origin, trace: activeTrace(undefined) });
  };
}

/** Brings outputs to sessions. */
export function laterHandler(service: () => Pick<SessionService, "bring">): TaskHandler {
  return task(laterTaskName, { attempts }, async (context: TaskContext<Json>) => {
    const { input, taskId, snoozes, parents } = context;
    const late = input as unknown as Late;
    const { sessionId, tenant, epoch, agent: author, messageId, toolCallId } = late;
    const bring = (output: Output) =>
      service().bring(tenant, sessionId, {
        // The same in every attempt.
        id: `later-${taskId}`,
        epoch,
        author,
        messageId,
        result: { toolCallId, ...output },
      });
    const outcome = await bring(late.result ?? (await outputOfChild(late, parents))).catch(
      (error: unknown) => {
        if (hasCode(error, "overloaded")) throw snooze(maxSnoozeMs, messageOf(error));
        if (!hasCode(error, ...unstorableCodes)) throw error;
        return bring({ errorText: `The output can't be stored: ${messageOf(error, 300)}` });
      },
    );
    if (outcome !== "under_way") return outcome;
    const delayMs = Math.min(maxSnoozeMs, firstSnoozeMs * 2 ** Math.min(snoozes, 10));
    throw snooze(delayMs, "the answer has not ended yet");
  });
}

/** How the task ended whose result is the output. What it threw is for its log, unless it is `abort`. */
async function outputOfChild(
  { child = "" }: Late,
  parents: () => Promise<Task[]>,
): Promise<Output> {
  const [ended] = await parents();
  if (ended?.status === "completed") return { output: ended.result };
  if (ended?.status === "cancelled") return { errorText: `${child} was cancelled` };
  if (ended?.status !== "failed")
    return { errorText: `${child} has ended, and its result is gone` };
  const { code, message } = ended.error;
  return { errorText: `${child} failed: ${code === "aborted" ? message : code}` };
}

function lateText(wait: Exclude<LaterWait, { type: "time" }>, timeoutMs: number): string {
  const what = wait.type === "signal" ? `the signal "${wait.signal}"` : wait.name;
  return `timeout: ${what} took over ${timeoutMs} ms`;
}
