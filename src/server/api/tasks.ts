import { type Json, scalarOf } from "../../base/json.ts";
import type { Context } from "hono";
import { FlotillaError } from "../../base/errors.ts";
import type { Flotilla } from "../../runtime/connect.ts";
import { type JsonRow, parseLine, parseRow, readLines } from "../../runtime/json-rows.ts";
import type { EachResult, EnqueueRow, RowOutcome } from "../../tasks/enqueue/each.ts";
import { createPathRules, hidden } from "../../redaction/paths.ts";
import { checkUnredacted, sharedRedactor } from "../../redaction/redactor.ts";
import { sensitivePaths } from "../../redaction/sensitive.ts";
import type { JsonValues } from "../../store/json-values.ts";
import type { TaskEventsOptions } from "../../tasks/tasks.ts";
import type { Links } from "../../links/links.ts";
import { accountIn } from "../admission/admission.ts";
import { type Caller, canSee, heldTenant, onlyTenant, requireVerb } from "../auth/caller.ts";
import { publicErrorOf } from "../errors.ts";
import { parseBody, readRequestBody, route, type Route, contentTypeOf } from "../route.ts";
import { seesContent } from "../serializer.ts";
import { validate } from "../validate.ts";
import { newTask, taskSpecs } from "./tasks.schema.ts";
import { whySpecs } from "./waiting/why.schema.ts";
import type { TaskContract } from "../../tasks/model.ts";

type TaskRoutes = {
  flotilla: Flotilla;
  /** Tasks whose input is checked before it is stored. */
  contracts?: ReadonlyMap<string, TaskContract> | undefined;
  /** The longest body of one task. */
  maxBytes: number;
};

type EnqueueRowsParts = {
  flotilla: Flotilla;
  contracts?: ReadonlyMap<string, TaskContract> | undefined;
  /** The longest row. */
  maxRowBytes: number;
};

// The same as for a bulk request: it is held in memory while it is read.
const maxGraphBytes = 32 * 1024 * 1024;
// A request and its answer are held in memory. Callers with more rows send several requests.
const maxBodyBytes = 32 * 1024 * 1024;
const maxRows = 100_000;
const ndjsonType = "application/x-ndjson";
// The largest page.
const maxEvents = 1_000;
// More than a path may have, so that one that is too long is refused as that.
const maxPathNames = 10;

/** Tasks: enqueue, read, cancel and retry them. */
export function taskRoutes({ flotilla, contracts, maxBytes }: TaskRoutes): Route[] {
  const contractOf = (name: string): TaskContract =>
    contracts?.get(name) ?? { name, input: undefined, output: undefined };
  /** A task of another tenant answers as a missing one does. Its tenant never changes. */
  const checkTask = async (caller: Caller, taskId: string): Promise<void> => {
    if (onlyTenant(caller) === undefined) return;
    const task = await flotilla.tasks.get(taskId);
    if (!task || !canSee(caller, task)) throw missing(taskId);
  };

  return [
    route(taskSpecs.enqueue, { maxBytes }).to(async ({ body, context }) => {
      const { name, input, options } = parseRow("the body", await body());
      // As in a copy of a task whose payload was shown without its secrets.
      checkUnredacted("input", input);
      flotilla.files.claimUploads(input, accountIn(context), options?.tenant);
      const trace = traceOf(context);
      const enqueued = await flotilla.enqueue(contractOf(name), input, { ...options, trace });
      const noWorker = (await noWorkerAmong(flotilla, [name])).has(name);
      return { status: enqueued.created ? 201 : 200, body: { ...enqueued, noWorker } };
    }),
    route(taskSpecs.graph, { maxBytes: maxGraphBytes }).to(async ({ body, context }) => {
      const { tasks } = await body();
      const rows = tasks.map(({ ref, after, ...rest }) => {
        const { name, input, options } = parseRow(`the task ${JSON.stringify(ref)}`, rest);
        flotilla.files.claimUploads(input, accountIn(context), options?.tenant);
        return { ref, task: contractOf(name), input, options, ...(after && { after }) };
      });
      const created = await flotilla.enqueueGraph(rows, { trace: traceOf(context) });
      const noWorker = await noWorkerAmong(flotilla, new Set(tasks.map(({ name }) => name)));
      const answers = tasks.map(({ ref, name }) => [
        ref,
        { ...created[ref]!, noWorker: noWorker.has(name) },
      ]);
      return { status: 201, body: { tasks: Object.fromEntries(answers) } };
    }),
    route(taskSpecs.list).to(async ({ caller, query, context }) => {
      const { payload, setAside, ids, ...given } = query;
      const filter = withoutUndefined({ ...given, tenant: heldTenant(caller, query.tenant) });
      const values = payload === undefined ? undefined : valuesIn(payload);
      if (values) checkPayloadFilter(caller, { name: query.name, contracts, payload: values });
      const { signal } = context.req.raw;
      const listed = {
        ...filter,
        ...(setAside && { setAside: true as const }),
        ...(ids !== undefined && { ids: ids.split(",") }),
        ...(values && { payload: values }),
        signal,
      };
      return { status: 200, body: await flotilla.tasks.list(listed) };
    }),
    route(taskSpecs.get).to(async ({ caller, params: { taskId } }) => {
      const task = await flotilla.tasks.get(taskId);
      if (!task || !canSee(caller, task)) throw missing(taskId);
      const read = (page: TaskEventsOptions) => flotilla.tasks.events(taskId, page);
      const [page, links] = await Promise.all([eventPage(read), flotilla.tasks.links(taskId)]);
      return { status: 200, body: { task, ...page, links: visibleLinks(caller, links) } };
    }),
    route(taskSpecs.events).to(async ({ caller, params: { taskId }, query }) => {
      await checkTask(caller, taskId);
      const read = (page: TaskEventsOptions) => flotilla.tasks.events(taskId, page);
      const page = await eventPage(read, query);
      // Most tasks have events. Check that the task exists only where there are none.
      if (page.events.length === 0 && !(await flotilla.tasks.get(taskId))) throw missing(taskId);
      return { status: 200, body: page };
    }),
    route(taskSpecs.steps).to(async ({ caller, params: { taskId }, query }) => {
      await checkTask(caller, taskId);
      const read = (page: TaskEventsOptions) => flotilla.tasks.steps(taskId, page);
      const { events: steps, next } = await eventPage(read, query);
      if (steps.length === 0 && !(await flotilla.tasks.get(taskId))) throw missing(taskId);
      return { status: 200, body: { steps, next } };
    }),
    route(whySpecs.get).to(async ({ caller, params: { taskId } }) => {
      const tenant = onlyTenant(caller);
      const verdict = await flotilla.tasks.why(taskId, tenant === undefined ? {} : { tenant });
      return { status: 200, body: { verdict } };
    }),
    route(taskSpecs.cancel).to(async ({ caller, params: { taskId } }) => {
      await checkTask(caller, taskId);
      const status = await flotilla.tasks.cancel(taskId);
      if (status === "cancelled") return { status: 200, body: { status } };
      if (status === "cancelling") return { status: 202, body: { status } };
      throw new FlotillaError("conflict", "the task has ended already and can't be cancelled");
    }),
    route(taskSpecs.signal, { maxBytes }).to(async ({ caller, params: { taskId }, body }) => {
      const { name, payload = null, ...options } = await body();
      await checkTask(caller, taskId);
      await flotilla.tasks.signal(taskId, name, payload as Json, withoutUndefined(options));
      return { status: 202, body: { status: "sent" } };
    }),
    route(taskSpecs.resume, { maxBytes }).to(async ({ caller, params: { taskId }, body }) => {
      const options = withoutUndefined(await body());
      await checkTask(caller, taskId);
      await flotilla.tasks.resumeTask(taskId, options);
      return { status: 200, body: { status: "pending" } };
    }),
    route(taskSpecs.retry).to(async ({ caller, params: { taskId }, query }) => {
      await checkTask(caller, taskId);
      const fromStart = query.fromStart === "true";
      const retried = await flotilla.tasks.retry(taskId, { fromStart });
      return { status: 200, body: { status: "pending", ...retried } };
    }),
  ];
}

/** The values by their paths that a query has gathered, of which each is JSON or text. */
export function valuesIn(gathered: string): JsonValues {
  const pairs = JSON.parse(gathered) as [string, string][];
  return Object.fromEntries(pairs.map(([path, text]) => [path, scalarOf(text)]));
}

type PayloadFilter = {
  readonly name: string | undefined;
  readonly contracts: ReadonlyMap<string, TaskContract> | undefined;
  /** What was given for it, which may be anything. */
  readonly payload: unknown;
};

/**
 * Refuses a filter by values of payloads to callers that may not see them, and by what no caller is shown,
 * since a match would confirm a guess.
 */
export function checkPayloadFilter(
  caller: Caller,
  { name = "", contracts, payload }: PayloadFilter,
): void {
  requireVerb(caller, "payloads:read");
  if (typeof payload !== "object" || payload === null) return;
  const marked = createPathRules(sensitivePaths(contracts?.get(name)?.input).map(hidden));
  refuseHidden(payload, {
    what: "payload",
    listed: "tasks",
    isHidden: (names, whole) =>
      names.some((_, at) => marked?.at(names.slice(0, at + 1)) === "hidden") ||
      sharedRedactor.value(whole, "input") !== whole,
  });
}

/** The same for values of the metadata of sessions, of which callers see those that they look after. */
export function checkMetadataFilter(caller: Caller, values: JsonValues): void {
  if (!seesContent(caller)) requireVerb(caller, "payloads:read");
  refuseHidden(values, {
    what: "metadata",
    listed: "sessions",
    isHidden: (_, whole) => sharedRedactor.value(whole, "metadata") !== whole,
  });
}

type HiddenParts = {
  readonly what: "payload" | "metadata";
  readonly listed: string;
  /** Whether a value, in the objects that its path names, is shown to no caller. */
  readonly isHidden: (names: readonly string[], whole: unknown) => boolean;
};

function refuseHidden(values: object, { what, listed, isHidden }: HiddenParts): void {
  for (const [path, value] of Object.entries(values)) {
    const names = path.split(".", maxPathNames);
    const whole = names.reduceRight<unknown>((inner, name) => ({ [name]: inner }), value);
    if (!isHidden(names, whole)) continue;
    throw new FlotillaError(
      "forbidden",
      `${what}.${names.join(".").slice(0, 80)} isn't shown to callers, so ${listed} can't be listed by it`,
    );
  }
}

/** Without what is of another tenant, unless the caller may see all. */
export function visibleLinks(caller: Caller, links: Links) {
  const { startedBy, started, hasMore, dependents, copies } = links;
  const isSeen = (linked: { readonly tenant: string | null }) => canSee(caller, linked);
  return {
    startedBy: startedBy && isSeen(startedBy) ? startedBy : null,
    started: started.filter(isSeen),
    hasMore,
    dependents: dependents.filter(isSeen),
    copies: copies.filter(isSeen),
  };
}

/**
 * Takes rows `{ name, input, options }`: one per line as NDJSON, or an array as JSON. Answers with the
 * count of each outcome, and with the outcome of each row in order.
 */
export function enqueueRowsRoutes(parts: EnqueueRowsParts): Route[] {
  return [
    route(taskSpecs.bulk).to(async ({ context }) => {
      const trace = traceOf(context);
      const toTask = ({ name, input, options }: JsonRow): EnqueueRow => {
        const task = parts.contracts?.get(name);
        parts.flotilla.files.claimUploads(input, accountIn(context), options?.tenant);
        const rest = { input, options: { ...options, trace } };
        return task ? { task, ...rest } : { task: name, ...rest };
      };
      const rows = await rowsOf(context, parts.maxRowBytes);
      const names = new Map<number, string>();
      const named = rows.map((row, at) => () => {
        const read = row();
        names.set(at, read.name);
        return read;
      });
      const result: EachResult = await parts.flotilla.enqueueEach(tasksOf(named, toTask), {
        signal: context.req.raw.signal,
      });
      const stored = result.outcomes.filter(({ outcome }) => outcome !== "rejected");
      const noWorker = await noWorkerAmong(
        parts.flotilla,
        new Set(stored.map(({ index }) => names.get(index)!)),
      );
      const outcomes = result.outcomes.map(publicOutcome);
      return { status: 200, body: { ...result, outcomes, noWorker: [...noWorker] } };
    }),
  ];
}

/** A page of events of a task or a run, and the number to continue after. */
export async function eventPage<Event extends { readonly seq: number }>(
  read: (page: TaskEventsOptions) => Promise<Event[]>,
  { after = 0, limit = maxEvents }: { after?: number | undefined; limit?: number | undefined } = {},
): Promise<{ events: Event[]; next: number | null }> {
  const events = await read({ after, limit });
  const last = events.at(-1)?.seq;
  const isWhole = last === undefined || (await read({ after: last, limit: 1 })).length === 0;
  return { events, next: isWhole ? null : last };
}

/**
 * Of the names that tasks were stored under, those without a live worker. Empty where the store fails,
 * because the tasks are stored and the request must succeed.
 */
export async function noWorkerAmong(
  { tasks }: Pick<Flotilla, "tasks">,
  names: Iterable<string>,
): Promise<ReadonlySet<string>> {
  return new Set(await tasks.noWorker([...names]).catch(() => []));
}

/** The trace that a request belongs to. */
export function traceOf(c: Context) {
  return { traceparent: c.req.header("traceparent"), tracestate: c.req.header("tracestate") };
}

/** Drops undefined options, as `exactOptionalPropertyTypes` demands. */
export function withoutUndefined<T extends Record<string, unknown>>(
  options: T,
): WithoutUndefined<T> {
  const entries = Object.entries(options).filter(([, value]) => value !== undefined);
  return Object.fromEntries(entries) as WithoutUndefined<T>;
}

type WithoutUndefined<T> = { [Name in keyof T]: Exclude<T[Name], undefined> };

function missing(taskId: string): FlotillaError {
  return new FlotillaError("not_found", `there is no task ${taskId.slice(0, 80)}`);
}

function publicOutcome(outcome: RowOutcome): RowOutcome {
  if (outcome.outcome !== "rejected") return outcome;
  const { message, details } = publicErrorOf(outcome, outcome.details);
  return { ...outcome, message, ...(outcome.details && { details }) };
}

/** Yields an error in place of an invalid row, so that only that row is rejected. */
function* tasksOf(
  rows: readonly (() => JsonRow)[],
  toTask: (row: JsonRow) => EnqueueRow,
): Generator<EnqueueRow | Error> {
  for (const row of rows) {
    try {
      yield toTask(row());
    } catch (error) {
      yield error as Error;
    }
  }
}

async function rowsOf(c: Context, maxRowBytes: number): Promise<(() => JsonRow)[]> {
  const type = contentTypeOf(c);
  if (type !== "application/json" && type !== ndjsonType) {
    throw new FlotillaError(
      "unsupported",
      `send rows as \`${ndjsonType}\`, one per line, or an array of them as \`application/json\``,
    );
  }
  const body = await readRequestBody(c, maxBodyBytes);
  const rows: (() => JsonRow)[] = [];
  if (type === ndjsonType) {
    for await (const line of readLines([body], { maxBytes: maxRowBytes })) {
      rows.push(() => checkedRow(`line ${line.number}`, parseLine(line)));
      if (rows.length > maxRows) break;
    }
  } else {
    const values = arrayOf(body);
    values.forEach((value, at) =>
      rows.push(() => checkedRow(`row ${at}`, parseRow(`row ${at}`, value))),
    );
  }
  if (rows.length <= maxRows) return rows;
  throw new FlotillaError(
    "payload_too_large",
    `a request takes ${maxRows} rows at most: send them in parts`,
    { details: { maxRows } },
  );
}

/** Validates a row against the same schema as the body of a single task. */
function checkedRow(what: string, row: JsonRow): JsonRow {
  validate(what, newTask, row, "body");
  return row;
}

function arrayOf(body: Uint8Array): unknown[] {
  const value = parseBody(body);
  if (Array.isArray(value)) return value as unknown[];
  throw new FlotillaError("invalid_input", "the body must be an array of rows");
}
