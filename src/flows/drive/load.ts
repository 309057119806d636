import { FlotillaError, hasCode, messageOf } from "../../base/errors.ts";
import { isJsonObject } from "../../base/json.ts";
import { check } from "../../base/schema.ts";
import { parseStored } from "../../store/codec/codec.ts";
import type { Database } from "../../store/database.ts";
import { concurrencyScopeOf } from "../../tasks/concurrency/limits.ts";
import { advanceRun } from "../decide/advance.ts";
import type { RunDecision, Now, SetAside } from "../decide/event.ts";
import {
  applyEvent,
  atEnd,
  type HistoryEvent,
  type Intent,
  type Run,
  type State,
  type RunWait,
} from "../decide/run.ts";
import { classifyThrown } from "../decide/thrown.ts";
import { findCursor, type Machine, moveEvent } from "../machine.ts";
import { retrySetAside } from "../sql.ts";
import type { TaskAttempt, TaskHandler } from "../../tasks/model.ts";

/** The columns of a run's row, unparsed. */
export type RunColumns = {
  /** 0 or null before any version has advanced it. */
  readonly version: number | null;
  readonly cursor: string | null;
  readonly state: string | null;
  readonly intent: string | null;
  readonly waiting: string | null;
  readonly stoppedAt: string | null;
  readonly failures: number;
  readonly deaths: number;
};

type Opened =
  | { readonly type: "open"; readonly run: Run }
  | Extract<RunDecision, { type: "set_aside" | "refuse" }>;

/**
 * Parses a run for this version of its flow. Never throws: a run that can't be read is set aside, so
 * that it doesn't stop the others.
 */
export function openRun(machine: Machine, stored: RunColumns): Opened {
  const version = stored.version ?? 0;
  if (version > machine.version) return { type: "refuse", version };
  const setAside = (reason: SetAside["reason"], message: string): SetAside => ({
    type: "set_aside",
    reason,
    message,
    byVersion: machine.version,
  });
  const state = parsed(stored.state ?? "{}", isState);
  if (state === undefined) return setAside("unreadable", "its state isn't a JSON object");
  const intent = parsed(stored.intent ?? "null", isIntent);
  if (intent === undefined) return setAside("unreadable", "its intent isn't readable");
  const waiting = parsed(stored.waiting ?? "null", isWaiting);
  if (waiting === undefined) return setAside("unreadable", "its wait isn't readable");
  const { cursor, stoppedAt, failures, deaths } = stored;
  const columns = { version, cursor, state, intent, waiting, stoppedAt, failures, deaths };
  const run: Run = { ...columns, unnoted: [] };
  if (cursor === null && version === 0) {
    const next = machine.parts[0]?.name ?? atEnd;
    return {
      type: "open",
      run: withUnnoted(run, { type: "start", version: machine.version, next }),
    };
  }
  if (cursor === null) return { type: "open", run };
  const found = findCursor(machine, cursor, intent !== null);
  if (!found) {
    return setAside(
      "unknown_transition",
      `it stands at "${cursor}", which version ${machine.version} of "${machine.name}" doesn't have: declare it in \`removed\` or \`renamed\``,
    );
  }
  const { why } = found;
  if (why === null) return { type: "open", run };
  return { type: "open", run: withUnnoted(run, moveEvent(machine, cursor, { ...found, why })) };
}

function withUnnoted(run: Run, event: HistoryEvent): Run {
  return { ...applyEvent(run, event), unnoted: [...run.unnoted, event] };
}

export function toColumns(run: Run): RunColumns {
  const { version, cursor, stoppedAt, failures, deaths } = run;
  return {
    version,
    cursor,
    stoppedAt,
    failures,
    deaths,
    state: JSON.stringify(run.state),
    intent: run.intent && JSON.stringify(run.intent),
    waiting: run.waiting && JSON.stringify(run.waiting),
  };
}

/**
 * Decides on a run whose input is invalid. A new one fails, as a task would. One that has begun is set
 * aside: the schema has changed since, and what the run has done so far shouldn't be lost.
 */
export function refuseInput(machine: Machine, run: Run, thrown: unknown, now: Now): RunDecision {
  const isNew = run.unnoted.some(({ type }) => type === "start");
  const hasFailedSo = run.intent?.type === "failed" && run.intent.error.code === "invalid_input";
  if (isNew || hasFailedSo || !hasCode(thrown, "invalid_input")) {
    return advanceRun(machine, run, { type: "threw", thrown: classifyThrown(thrown) }, now);
  }
  const byVersion = machine.version;
  return { type: "set_aside", reason: "invalid_input", message: messageOf(thrown), byVersion };
}

function parsed<Read>(text: string, is: (value: unknown) => value is Read): Read | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return is(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

function isState(value: unknown): value is State {
  return isJsonObject(value);
}

function isIntent(value: unknown): value is Intent | null {
  if (value === null) return true;
  if (!isJsonObject(value)) return false;
  const { type, error } = value;
  if (type === "failed") return isJsonObject(error) && typeof error["code"] === "string";
  return type === "completed" || type === "cancelled";
}

function isWaiting(value: unknown): value is RunWait | null {
  if (value === null) return true;
  if (!isJsonObject(value) || typeof value["sinceMs"] !== "number") return false;
  const { for: what, untilMs } = value;
  if (what === "children") return true;
  if (what === "signal") return untilMs === null || typeof untilMs === "number";
  return what === "sleep" && typeof untilMs === "number";
}

/** The concurrency scope of a run that a caller started by name alone, without the flow's limits. */
export function runScopeOf(
  machine: Machine,
  { name, payload, run }: TaskAttempt["claim"],
): string | undefined {
  const { queue, concurrency } = machine;
  if (queue === undefined && concurrency === undefined) return undefined;
  try {
    const input: unknown = JSON.parse(payload);
    const { tenant } = run!;
    const limit = concurrencyScopeOf({
      name,
      queue,
      concurrency,
      input,
      concurrencyKey: undefined,
      tenant,
    });
    return limit?.scope ?? undefined;
  } catch {
    // An invalid input is reported when the run begins.
    return undefined;
  }
}

type Input = { readonly value: unknown } | { readonly error: unknown };

/** The input of a claimed run, parsed by its schema, or the error. */
export async function readInput(machine: Machine, claim: TaskAttempt["claim"]): Promise<Input> {
  const what = `the stored input of "${claim.name}"`;
  try {
    let stored: unknown;
    try {
      stored = parseStored(claim.payload);
    } catch (cause) {
      if (hasCode(cause, "codec_failed")) throw cause;
      throw new FlotillaError("invalid_input", `${what} isn't JSON`, { cause });
    }
    return { value: await check(machine.input, stored, what, "invalid_input") };
  } catch (error) {
    return { error };
  }
}

/** A refusal by the store, or by the check of a child, as an error of the transition. */
export function storeRefusal(error: unknown, refusals: number): FlotillaError {
  const why = refusals === 1 ? messageOf(error) : "the pod's log says why";
  const code = hasCode(
    error,
    "invalid_input",
    "invalid_option",
    "payload_too_large",
    "payload_too_deep",
  )
    ? (error as FlotillaError).code
    : "payload_not_storable";
  return new FlotillaError(code, `the store refused the run's next state: ${why}`);
}

/** When a pod starts: lets its flows retry runs that earlier versions couldn't read. */
export async function retrySetAsideRuns(
  database: Database,
  handlers: Iterable<TaskHandler>,
): Promise<void> {
  const statements = [...handlers].flatMap(({ name, flow }) =>
    flow ? [retrySetAside(name, flow.version)] : [],
  );
  if (statements.length > 0) await database.write(statements, { notify: true });
}
