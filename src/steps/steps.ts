import { FlotillaError, hasCode } from "../base/errors.ts";
import type { Json } from "../base/json.ts";
import { withFields } from "../base/log.ts";
import {
  callEach,
  callWithin,
  decodeError,
  defaultTimeoutMs,
  encodeError,
  encodeResult,
  isLoopDone,
  isStoredError,
  type Round,
  roundContext,
  StepController,
  toRound,
  type Within,
} from "./call.ts";
import { openJournal } from "./journal.ts";
import { checkStepName, contextKey, innerPrefix, roundPrefix } from "./key.ts";
import { type KeyedSignal, laterByWaits, setLaterHost } from "./later.ts";
import { withOwner } from "./model-calls.ts";
import type {
  ForEachOptions,
  RoundContext,
  Step,
  StepContext,
  StepOptions,
  Steps,
  StepsParts,
  StepWrite,
  StoredStep,
  TaskSteps,
} from "./model.ts";
import {
  calledLate,
  changed,
  checkForEach,
  checkRound,
  checkStep,
  hashOf,
  lookFor,
  stepNotCommitted,
  storedTwice,
  unreadable,
} from "./refusals.ts";
import {
  type Call,
  closeScope,
  type Ended,
  leaveScope,
  maxShown,
  newScope,
  placeOf,
  refuseIn,
  type Scope,
  scopeWithin,
  settleScope,
  trackIn,
} from "./scope.ts";
import { createTaking } from "./taking.ts";
import { createParking, createWaits, waitsIn } from "./waits.ts";

type AnyOptions = StepOptions<any>;
type AnyRun = (context: StepContext) => unknown;
type AnyRound = (state: any, context: RoundContext) => unknown;

/** Creates the steps of an attempt. Nothing is read before the first of them. */
export function createSteps(parts: StepsParts): Steps {
  const { journal, clock, limits } = parts;
  const rows = openJournal(journal, limits);
  let running = 0;
  let stored = 0;
  let refused = false;
  let changedStep: FlotillaError | undefined;
  let storing = 0;
  let unasked: readonly string[] = [];
  let allStored: PromiseWithResolvers<void> | undefined;
  /** When the rows of earlier attempts were read. */
  let readMs = 0;
  /** The rows of steps that are called at most once, as this attempt has found or stored them. */
  const ofOnce = new Map<string, StoredStep>();
  /** Steps whose functions run, and waits that look whether they are over. */
  let busy = 0;
  const isIdle = () => busy === 0 && storing === 0;
  const parking = createParking({ clock, log: parts.log, isIdle });

  const refuseIfOver = (scope: Scope, name: string): void => {
    if (scope.over) throw calledLate(scope.prefix, name);
    const refusal = changedStep ?? parking.refusal ?? parts.refusal();
    refused ||= refusal !== undefined && refusal !== parking.refusal;
    if (refusal) refuseIn(scope, refusal);
  };

  /** Nothing is awaited before, so that steps are numbered in the order of their calls. */
  const enter = (scope: Scope, name: string, options: Pick<AnyOptions, "key" | "input">): Call => {
    checkStepName(name);
    refuseIfOver(scope, name);
    const hash = options.input === undefined ? null : hashOf(name, options.input);
    return { name, path: placeOf(scope, name, options.key), scope, hash };
  };

  /** The row of an earlier attempt. */
  const find = async (call: Call): Promise<StoredStep | undefined> => {
    const reading = rows.reading();
    if (reading) {
      await reading;
      readMs = clock.monotonic();
      refuseIfOver(call.scope, call.name);
    }
    const { path, hash } = call;
    const row = ofOnce.get(path) ?? rows.find(path);
    if (row === undefined || hash === null || row.inputHash === null) return row;
    if (row.inputHash !== hash) throw changed(path, row.inputHash, hash);
    return row;
  };

  /** Returns what a step has returned, or throws what it has thrown. */
  const answer = async (row: StoredStep): Promise<Json> => {
    const value = await rows.valueOf(row);
    const error = row.kind === "failed" ? decodeError(value) : undefined;
    if (row.kind === "failed" && error === undefined) throw unreadable(row.key, "is no error");
    parts.onEnded?.("answered");
    parts.trace?.answered(row.key);
    if (error) throw error;
    return value;
  };

  const writeOf = (call: Call, { kind, value, startedMs, inner, takes }: Ended): StepWrite => ({
    key: call.path,
    seq: rows.nextSeq(),
    kind,
    inputHash: call.hash,
    value,
    tookMs: Math.max(0, Math.round(clock.monotonic() - startedMs)),
    forgets: inner !== undefined && (inner.rows.size > 0 || rows.within(call.path).length > 0),
    ...(takes !== undefined && { takes }),
  });

  /** Throws if the row has no room, and keeps it until the returned function is called. */
  const reserve = ({ path }: Call, { value, inner }: Pick<Ended, "value" | "inner">) => {
    const forgotten = inner ? new Set([...inner.rows, ...rows.within(path)]) : new Set<string>();
    return rows.reserve(path, Buffer.byteLength(value), forgotten);
  };

  /** Stores a row. The step has ended, so that it is stored whatever becomes of the attempt. */
  const store = async (call: Call, ended: Ended): Promise<void> => {
    const release = reserve(call, ended);
    const write = writeOf(call, ended);
    storing++;
    try {
      await (ended.storeAs ? ended.storeAs(write) : journal.store(write));
    } catch (error) {
      if (hasCode(error, "claim_lost")) refused = true;
      throw error;
    } finally {
      release();
      if (--storing === 0) {
        allStored?.resolve();
        allStored = undefined;
      }
      parking.check();
    }
    noteStored(call, write, ended.inner);
  };

  const noteStored = ({ path, scope }: Call, write: StepWrite, inner: Scope | undefined): void => {
    stored++;
    if (write.forgets) {
      for (const key of inner!.rows) {
        rows.drop(key);
        ofOnce.delete(key);
      }
      for (const key of rows.within(path)) rows.drop(key);
      inner!.rows.clear();
    }
    const bytes = Buffer.byteLength(write.value);
    rows.set(path, bytes);
    if (write.kind === "begun" || ofOnce.has(path)) ofOnce.set(path, { ...write, bytes, ageMs: 0 });
    scope.rows.add(path);
  };

  const settle = (scope: Scope, within: string, warn: boolean) => {
    scope.left = true;
    parking.dropLeft();
    return settleScope(scope, within, warn ? parts.log() : undefined);
  };

  const track = <Result>(
    scope: Scope,
    name: string | undefined,
    ended: Promise<Result>,
  ): Promise<Result> =>
    trackIn(scope, name, ended, (error) => {
      if (parts.setsAside && hasCode(error, "step_changed")) changedStep ??= error as FlotillaError;
    });

  /** A task may be parked before its code has come to await the wait. */
  const trackWait = <Result>(scope: Scope, over: Promise<Result>) => {
    const tracked = track(scope, undefined, over);
    tracked.catch(() => {});
    return tracked;
  };

  /** Runs what a call does unless an earlier attempt has ended it. */
  const unlessStored = async (
    call: Call,
    run: (row: StoredStep | undefined) => Promise<Json>,
  ): Promise<Json> => {
    const row = await find(call);
    if (row?.kind === "done" || row?.kind === "failed") return answer(row);
    rows.refuseIfFull(running);
    parts.onRunning?.(++running);
    try {
      const inStep = () => (parts.takes ? taking.runStep(() => run(row)) : run(row));
      return await (parts.trace ? parts.trace.run(call, inStep) : inStep());
    } finally {
      parts.onRunning?.(--running);
    }
  };

  const runStep = async (
    scope: Scope,
    name: string,
    options: AnyOptions,
    run: AnyRun,
  ): Promise<Json> => {
    checkStep(name, options, run);
    const { once, key } = options;
    const call = enter(scope, name, options);
    const { path } = call;
    try {
      return await unlessStored(call, async (row) => {
        if (row?.kind === "round") throw unreadable(path, "is the state of a loop");
        if (once === undefined) return execute(call, options, run);
        if (row?.kind === "begun") {
          ofOnce.set(path, row);
          return execute(call, options, lookFor(path, once));
        }
        const nowMs = clock.monotonic();
        await store(call, { kind: "begun", value: "null", startedMs: nowMs });
        return execute(call, options, run);
      });
    } finally {
      // A step that has begun keeps its place: called again, it says what became of it.
      const isStored = rows.has(path) && ofOnce.get(path)?.kind !== "begun";
      leaveScope(scope, { name, key, isStored });
    }
  };

  /** Calls the function, and stores what it returns. */
  const execute = async (call: Call, options: AnyOptions, run: AnyRun): Promise<Json> => {
    const { timeoutMs = defaultTimeoutMs, throttle } = options;
    if (options.timeoutMs !== undefined) parts.onBegun?.(timeoutMs);
    const startedMs = clock.monotonic();
    const controller = new StepController(call.scope.signal);
    const inner = scopeWithin(call.scope, innerPrefix(call.path), controller);
    const { context, written, release } = contextOf(call, inner, controller, startedMs);
    const { path } = call;
    const callParts = { clock, controller, path, timeoutMs, graceMs: parts.graceMs };
    const within = () => callWithin(() => run(context), callParts);
    let ended: Ended;
    let thrown: { readonly error: unknown } | undefined;
    busy++;
    try {
      const result = await (throttle
        ? throttle.run(within, { signal: controller.signal })
        : within());
      await settle(inner, path, true);
      const value = written()?.value ?? encodeResult(path, result, limits.maxValueBytes);
      ended = { kind: "done", value, startedMs, inner };
    } catch (error) {
      await settle(inner, path, false);
      thrown = { error };
      const value = isStoredError(error) ? encodeError(path, error) : "null";
      ended = { kind: "failed", value, startedMs, inner };
    }
    try {
      const write = written();
      if (write) return await committed(call, write, inner, thrown);
      if (thrown && !isStoredError(thrown.error)) throw thrown.error;
      await store(call, ended);
      parts.onEnded?.("stored");
      if (thrown) throw thrown.error;
      return JSON.parse(ended.value) as Json;
    } finally {
      release();
      busy--;
      parking.check();
      closeScope(inner, call.scope);
    }
  };

  /** Only the row shows whether the function's own transaction was committed. */
  const committed = async (
    call: Call,
    write: StepWrite,
    inner: Scope,
    thrown: { readonly error: unknown } | undefined,
  ): Promise<Json> => {
    if (!(await journal.isStored(write))) {
      parts.onUncommitted?.();
      throw thrown ? thrown.error : stepNotCommitted(call.path);
    }
    noteStored(call, write, inner);
    parts.onEnded?.("stored");
    return JSON.parse(write.value) as Json;
  };

  const contextOf = (
    call: Call,
    inner: Scope,
    controller: StepController,
    startedMs: number,
  ): Within => {
    let step: Step | undefined;
    let written: StepWrite | undefined;
    let reserved: (() => void) | undefined;
    const context: StepContext = {
      get step() {
        return (step ??= stepIn(inner));
      },
      get key() {
        return contextKey(parts.ownerId, call.path);
      },
      get signal() {
        return controller.signal;
      },
      get log() {
        return withFields(parts.log(), { step: call.path });
      },
      async store(tx, result) {
        refuseIfOver(inner, call.name);
        if (written) throw storedTwice(call.path);
        const value = encodeResult(call.path, result, limits.maxValueBytes);
        reserved = reserve(call, { value, inner });
        written = writeOf(call, { kind: "done", value, startedMs, inner });
        await journal.storeWithin(tx, written);
        return result;
      },
    };
    return { context, written: () => written, release: () => reserved?.() };
  };

  const runEach = async (
    scope: Scope,
    name: string,
    items: readonly unknown[],
    options: ForEachOptions<any>,
    run: (item: unknown, context: StepContext) => unknown,
  ): Promise<Json[]> => {
    const { keys, atOnce, rest } = checkForEach(scope.prefix, name, items, options, run);
    return callEach(items, atOnce, (item, at) =>
      step(scope, name, { ...rest, key: keys[at]! }, (context) => run(item, context)),
    );
  };

  const runLoop = async (
    scope: Scope,
    name: string,
    first: unknown,
    round: AnyRound,
  ): Promise<Json> => {
    checkRound(name, round);
    const call = enter(scope, name, {});
    try {
      return await unlessStored(call, async (row) => {
        let state = row
          ? toRound(row, await rows.valueOf(row))
          : { at: 1, value: encodeResult(call.path, first, limits.maxValueBytes) };
        for (;;) {
          const ended = await runRound(call, state, round);
          if (ended.kind === "done") return JSON.parse(ended.value) as Json;
          state = { at: state.at + 1, value: ended.value };
        }
      });
    } finally {
      leaveScope(scope, { name, isStored: rows.has(call.path) });
    }
  };

  /** Runs one round of a loop, and stores the state or the result that it returned. */
  const runRound = async (
    call: Call,
    state: Round,
    round: AnyRound,
  ): Promise<{ kind: "done" | "round"; value: string }> => {
    refuseIfOver(call.scope, call.name);
    const startedMs = clock.monotonic();
    const controller = new StepController(call.scope.signal);
    const prefix = roundPrefix(call.path, state.at);
    const inner = scopeWithin(call.scope, prefix, controller, call.scope.waits);
    const { context } = contextOf({ ...call, path: prefix.slice(0, -1) }, inner, controller, 0);
    try {
      const returned = await round(JSON.parse(state.value), roundContext(context));
      await settle(inner, call.path, true);
      const kind = isLoopDone(returned) ? "done" : "round";
      const result = isLoopDone(returned) ? returned.done : returned;
      const value = encodeResult(call.path, result, limits.maxValueBytes);
      const row = kind === "done" ? value : `{"at":${state.at + 1},"state":${value}}`;
      await store(call, { kind, value: row, startedMs, inner });
      if (kind === "done") parts.onEnded?.("stored");
      return { kind, value };
    } catch (error) {
      await settle(inner, call.path, false);
      throw error;
    } finally {
      closeScope(inner, call.scope);
    }
  };

  const step = (scope: Scope, name: string, options: AnyOptions, run: AnyRun): Promise<Json> =>
    track(scope, name, runStep(scope, name, options, run));

  const stepIn = (scope: Scope): Step => {
    const call = (name: string, first: AnyOptions | AnyRun, second?: AnyRun) =>
      typeof first === "function"
        ? step(scope, name, {}, first)
        : step(scope, name, first, second as AnyRun);
    const forEach = (...given: [string, readonly unknown[], ForEachOptions<any>, any]) =>
      track(scope, given[0], runEach(scope, ...given));
    const loop = (...given: [string, unknown, AnyRound]) =>
      track(scope, given[0], runLoop(scope, ...given));
    const made = Object.assign(call, { forEach, loop, ...waitsIn(scope, waits, trackWait) });
    const steps = withOwner(made as unknown as TaskSteps, parts, scope);
    if (!scope.waits) return steps;
    const signal: KeyedSignal = (name, key, options) =>
      trackWait(scope, waits.signal(scope, name, options, key));
    return setLaterHost(steps, laterByWaits(steps, signal));
  };

  const waits = createWaits({
    ...parts,
    parking,
    find: async (scope, { name, key }) => {
      const call = enter(scope, name, key === undefined ? {} : { key });
      return { call, row: await find(call) };
    },
    answer,
    valueOf: rows.valueOf,
    store,
    sinceReadMs: () => clock.monotonic() - readMs,
    refuseIfFull: () => rows.refuseIfFull(running),
    looking(change) {
      busy += change;
      parking.check();
    },
    host: parts.waits,
  });
  const taking = createTaking({
    rows,
    scope: () => top,
    enter: () => refuseIfOver(top, "taken"),
    onRead: () => void (readMs = clock.monotonic()),
    answer,
    store,
    encode: (path, value) => encodeResult(path, value, limits.maxValueBytes),
    running(change) {
      if (change > 0) rows.refuseIfFull(running);
      parts.onRunning?.((running += change));
    },
    onStored: () => parts.onEnded?.("stored"),
    clock,
  });
  const top = newScope("", 0, parts.signal, parts.waits !== undefined);
  return {
    step: stepIn(top),
    take: (look) => track(top, undefined, taking.take(look)),
    get stored() {
      return stored;
    },
    get refused() {
      return refused || parking.parked !== undefined || changedStep !== undefined;
    },
    get changed() {
      return changedStep;
    },
    get parked() {
      return parking.parked;
    },
    get unasked() {
      return unasked;
    },
    get storing() {
      return storing > 0;
    },
    async whenStored() {
      if (storing > 0) await (allStored ??= Promise.withResolvers<void>()).promise;
    },
    async settle(returned) {
      // What failed beside a wait is tried again, not when the wait is over.
      if (!returned) parking.giveUp();
      await settle(top, parts.ownerId, returned);
      unasked = returned ? rows.unasked() : [];
      const fields = { steps: unasked.slice(0, maxShown), count: unasked.length };
      if (unasked.length > 0) parts.log().info(fields, "stored steps were not asked for");
    },
  };
}
