import { FlotillaError, hasCode, messageOf, unstorableCodes } from "../../base/errors.ts";
import { withFields } from "../../base/log.ts";
import type { UsageLedger } from "../../base/usage.ts";
import { estimateMessageTokens } from "../../protocol/message.ts";
import type { ModelCallOptions } from "../../steps/model-calls.ts";
import { setHearing } from "../../steps/steering.ts";
import type { NewTask } from "../../tasks/sql/enqueue.ts";
import type { QueuePosition } from "../../throttles/limiter/permit.ts";
import { throttleMiddleware } from "../../throttles/model-middleware.ts";
import type { Reply } from "../conversation/command.ts";
import type { Header, Turn } from "../conversation/header.ts";
import {
  type Answer,
  catchUpWithin,
  createAnswer,
  entryErrorOf,
  keepCheckpoints,
  usageOfAnswer,
} from "./answer.ts";
import { type FunctionCallOptions, contextOf, answerStreamOf, triggerOf } from "./call-function.ts";
import { type AnswerStream, callUrl } from "./call-url.ts";
import { AgentFailure, failureOf, limitFailureOf } from "./failure.ts";
import { referredFiles, withFileUrls } from "./files.ts";
import { type History, readHeard, readHistory } from "./history.ts";
import { type AttemptMeter, budgetUsed, createAttemptMeter } from "./meter.ts";
import type { AgentNetwork } from "./network.ts";
import type { Control, RunnerParts, TurnEvent } from "./parts.ts";
import { callWithRetries } from "./call-agent.ts";
import { createTurnLater } from "./later.ts";
import { readUntilAvailable, readWhileAway, reportToOwner } from "./report.ts";
import { createTurnSteering } from "./steering.ts";
import { createTurnSteps, replaced } from "./steps.ts";
import {
  createUnfinished,
  encodeCheckpoint,
  readUnfinished,
  type TurnUnfinished,
} from "./unfinished.ts";
import type { AgentSpec } from "../agents/spec.ts";

export type TurnParts = RunnerParts & { readonly network: AgentNetwork };

type MadeAnswer = {
  readonly answer?: Answer;
  readonly failure?: AgentFailure | undefined;
  readonly ttftMs?: number | undefined;
  /** Messages that an earlier attempt has heard never reached this one. */
  readonly isUnheard?: boolean;
};

type AnswerRequest = {
  readonly spec: AgentSpec;
  readonly header: Header;
  readonly turn: Turn;
  readonly history: History;
  readonly usage: UsageLedger;
};

/** What a turn gets from the runner that it runs in. */
type TurnWork = {
  readonly control: Control;
  /** `save` stores what another attempt can go on with, if there is something. */
  readonly show: (answer: Answer, save: () => Promise<void>) => void;
  /** When the runner was told to start it, by `clock.monotonic`. */
  readonly receivedMs: number;
};

/** What a checkpoint is made of. */
type SavedAnswer = {
  readonly answer: Answer;
  readonly control: Control;
  readonly meter: AttemptMeter;
  readonly unfinished: TurnUnfinished;
};

type WaitReporter = {
  /** Sets whether the turn waits for a permit now. */
  set(waits: boolean): void;
  stop(): void;
};

const defaultMaxReplyBytes = 1024 * 1024;
const defaultMaxResultBytes = 256 * 1024;

/** Makes one answer and stores it. Never rejects: failures are stored as well, or logged. */
export async function runTurn(
  parts: TurnParts,
  header: Header,
  turn: Turn,
  { control, show, receivedMs }: TurnWork,
): Promise<void> {
  const { clock, log, onEvent } = parts;
  const { sessionId } = header;
  const { epoch, attempt, agent } = turn;
  const beganMs = clock.monotonic();
  onEvent?.({ type: "turn_started", agent });
  const { tenant } = header;
  const { trigger, trace } = turn;
  const span = parts.traced?.({ sessionId, tenant, agent, epoch, attempt, trigger, trace });
  const meter = createAttemptMeter(parts, turn, receivedMs);
  const make = () => makeAnswer(parts, header, turn, { control, show, meter });
  const made: MadeAnswer = await (span ? span.run(make) : make()).catch((error: unknown) => ({
    failure: failureOf(error),
  }));
  const { answer, ttftMs, failure } = made;
  const ended = (outcome: Extract<TurnEvent, { type: "turn_ended" }>["outcome"]) => {
    const chunks = answer?.chunks ?? 0;
    const durationMs = clock.monotonic() - beganMs;
    span?.end({ outcome, chunks, error: failure?.code });
    onEvent?.({
      type: "turn_ended",
      agent,
      outcome,
      ...(ttftMs !== undefined && { ttftMs }),
      durationMs,
      chunks,
      tokens: meter.ledger.totals("fresh"),
      savedTokens: meter.ledger.totals("again"),
    });
  };
  if (control.signal.aborted && !control.kept) {
    answer?.drop();
    ended("dropped");
    return;
  }
  const reply = replyOf(made, control, meter);
  ended(reply.outcome);
  try {
    const result = await finish(parts, header, turn, reply);
    if (result.done !== false) return;
    log.info({ session: sessionId, epoch, attempt }, "late answer not stored");
  } catch (error) {
    const fields = { session: sessionId, epoch, attempt, error: messageOf(error) };
    log.error(fields, "answer not stored");
  }

  async function finish(to: TurnParts, of: Header, { epoch: at }: Turn, finalReply: Reply) {
    const command = { type: "turn_finished", epoch: at, attempt, reply: finalReply } as const;
    const gone = dropped(control);
    try {
      return await reportToOwner(to, of, command, gone);
    } catch (error) {
      if (!hasCode(error, ...unstorableCodes)) {
        throw error;
      }
      // The session waits for an answer, so store one that says why there is none.
      const why = { code: "answer_too_large", message: messageOf(error, 300) };
      const { measured } = finalReply;
      const nothing: Reply = {
        outcome: "failed",
        parts: [],
        tokens: 0,
        error: why,
        ...(measured && { measured }),
      };
      return reportToOwner(to, of, { ...command, reply: nothing }, gone);
    }
  }
}

async function makeAnswer(
  parts: TurnParts,
  header: Header,
  turn: Turn,
  { control, show, meter }: Omit<TurnWork, "receivedMs"> & { meter: AttemptMeter },
): Promise<MadeAnswer> {
  if (turn.stopping || control.signal.aborted) {
    // If steps are stored, the owner ends it with what the last attempt has stored of the answer.
    control.end({ keep: !turn.hasSteps });
    return {};
  }
  const { clock } = parts;
  const { sessionId, tenant } = header;
  const { epoch, attempt } = turn;
  const input = await readUntilAvailable(parts, control, async () => {
    const spec = await parts.agentOf(tenant, turn.agent);
    const history = spec && (await readHistory(parts.journal, header, turn, spec));
    return { spec, history, kept: await readUnfinished(parts.journal, sessionId, turn) };
  });
  if (!input) return {};
  const { spec, history, kept } = input;
  if (!spec || !history) {
    const message = `this pod has no agent ${JSON.stringify(turn.agent)}: define it in code or store it`;
    return { failure: new AgentFailure("agent_missing", message) };
  }
  const unfinished = createUnfinished(kept, () => catchUp?.done());
  const isHeld =
    spec.source.type === "function" && (turn.hasSteps === true || unfinished.isAwaited);
  const answer = createAnswer({
    name: { sessionId, epoch, attempt },
    messageId: turn.messageId,
    initial: history.continued,
    maxBytes: parts.maxReplyBytes ?? defaultMaxReplyBytes,
    clock,
    live: parts.live.chunks,
    held: isHeld,
  });
  const save = () => checkpoint(parts, header, turn, { answer, control, meter, unfinished });
  show(answer, async () => {
    if (unfinished.isWorthKeeping) await save();
  });
  const catchUp = isHeld ? catchUpWithin(clock, answer.release, unfinished) : undefined;
  const waits = reportWaits(parts, header, turn, control);
  const onWaiting = (at: QueuePosition | undefined) => {
    answer.reportWait(at);
    waits.set(at !== undefined);
  };
  const earlier = usageOfAnswer(history.continued);
  const before = earlier && budgetUsed(earlier);
  const onTokens: ModelCallOptions["onTokens"] = (_, used) => meter.called(used);
  let callError: unknown;
  const onEnded = (error?: unknown) => void (callError = error);
  /** What tool calls wait for, by the keys of their steps. */
  const waitedFor = new Map<string, readonly NewTask[]>();
  const steps = createTurnSteps({
    clock,
    log: () => withFields(parts.log, { session: sessionId, agent: turn.agent, epoch, attempt }),
    sessionId,
    turn,
    control,
    journal: parts.journal,
    maxValueBytes: parts.maxResultBytes ?? defaultMaxResultBytes,
    read: (ask) => readUntilAvailable(parts, control, ask),
    tasksOf: (key) => waitedFor.get(key) ?? [],
    store(rows, tasks) {
      const started = tasks.length > 0 ? { tasks } : {};
      const command = { type: "turn_steps", epoch, attempt, rows, ...started } as const;
      return reportToOwner(parts, header, command, dropped(control));
    },
    onCaughtUp: () => catchUp?.done(),
    modelCalls: {
      ...modelCallsOfAgent(parts, spec, onWaiting),
      files: referredFiles(parts.files, sessionId, readWhileAway(parts, control)),
      before,
      onTokens,
      onEnded,
    },
    unfinished: unfinished.steps,
  });
  let callSteps: ReturnType<typeof steps.open> | undefined;
  const isSteered = spec.source.type === "function" && spec.during === "steer" && !turn.wake;
  const steering = createTurnSteering({
    turn,
    async ask(command) {
      const result = await reportToOwner(parts, header, command, dropped(control));
      if (result.done !== false) return result;
      control.end({ keep: false });
      throw replaced({ sessionId, epoch });
    },
    async read(seqs, maxBytes) {
      const { context } = spec;
      const found = await readUntilAvailable(parts, control, () =>
        readHeard(parts.journal, sessionId, seqs, { context, maxBytes }),
      );
      if (!found) throw new FlotillaError("cancelled", "the answer is no longer wanted");
      return found;
    },
    mayHear: () => !unfinished.isAwaited,
  });
  const checkpoints = keepCheckpoints(clock, {
    bytes: () => answer.bytes,
    hasSteps: () => turn.hasSteps === true || steps.hasStored,
    unfinished,
    store: save,
  });
  const beganMs = clock.monotonic();
  let ttftMs: number | undefined;
  const failure = await callWithRetries(
    { ...parts, log: withFields(parts.log, { session: sessionId, epoch, attempt }) },
    {
      spec,
      deadlineAtMs: undefined,
      answer,
      control,
      usage: meter.ledger,
      async open(signal, { touch, busy: onBusy }) {
        catchUp?.begin();
        callSteps = undefined;
        meter.restart();
        const later = createTurnLater(
          async (call, wait) => {
            const tasks = await parts.prepareLater({ ...turn, sessionId, tenant }, call, wait);
            waitedFor.set(call.key, tasks);
          },
          history.continued,
          clock.now,
        );
        const opened = () => (callSteps ??= steps.open({ signal, onBusy, later: later.host }));
        const heard = steering.open((look) => opened().take(look));
        const step = () => {
          const { step: made } = opened();
          return isSteered ? setHearing(made, ({ atStep }) => hearUnlessInStep(atStep)) : made;
        };
        const hear = async () => (isSteered ? heard.hear() : []);
        // A model that is asked within a step of the function's own hears nothing: that step stands for it.
        const hearUnlessInStep = (atStep: number) =>
          heard.hear(atStep).catch((error: unknown) => {
            if (hasCode(error, "step_ambiguous")) return [];
            throw error;
          });
        const request = { spec, header, turn, history, usage: meter.ledger };
        const answered = await open(parts, request, { signal, touch, step, hear });
        const stream = later.read(heard.read(answered));
        return { ...stream, cause: () => stream.cause?.() ?? limitFailureOf(callError)?.cause };
      },
      settle: async (returned) => callSteps?.settle(returned),
      onChunk() {
        if (!answer.begun) return;
        meter.begun();
        ttftMs ??= clock.monotonic() - beganMs;
        checkpoints.changed();
      },
      onWaiting,
    },
    spec,
  );
  checkpoints.stop();
  waits.stop();
  catchUp?.stop();
  return { answer, failure, ttftMs, isUnheard: isSteered && steering.isUnheard };
}

/** What an agent's options say about its durable calls to models. */
function modelCallsOfAgent(
  { prices }: TurnParts,
  { budget, throttle }: AgentSpec,
  onWaiting: (at: QueuePosition | undefined) => void,
): ModelCallOptions {
  const middleware = throttle && throttleMiddleware(throttle.declared, throttle.key, {}, onWaiting);
  return { prices, ...(budget && { budget }), ...(middleware && { middleware }) };
}

async function open(
  parts: TurnParts,
  { spec, header, turn, history, usage }: AnswerRequest,
  call: FunctionCallOptions,
): Promise<AnswerStream> {
  const { signal, touch } = call;
  const { source } = spec;
  if (source.type === "function") {
    const returned = await source.run(contextOf(parts, { header, turn, history, usage }, call));
    return answerStreamOf(returned, touch, turn);
  }
  const { sessionId, tenant } = header;
  const { epoch, attempt, agent, upToSeq, messageId } = turn;
  const { user, summary } = history;
  const messages = await withFileUrls(parts.files, header, history.messages);
  const request = {
    id: sessionId,
    messages,
    trigger: triggerOf(turn),
    ...(turn.trigger !== "submit" && { messageId }),
    flotilla: {
      sessionId,
      tenant,
      agent,
      epoch,
      attempt,
      ...(user !== undefined && { user }),
      ...(summary !== undefined && { summary }),
      seq: upToSeq,
      ...(turn.wake && { woken: { key: turn.wake.key, atMs: turn.wake.atMs } }),
    },
  };
  const { network, clock } = parts;
  return callUrl({ source, request, network, clock, signal, touch });
}

/** Stores the partial answer. Ends this turn if the owner has started a later attempt or turn. */
async function checkpoint(
  { ask, log }: TurnParts,
  { tenant, sessionId }: Header,
  { epoch, attempt }: Turn,
  { answer, control, meter, unfinished }: SavedAnswer,
): Promise<void> {
  const content = answer.content();
  const tokens = estimateMessageTokens(content.parts);
  const soFar: Reply = { outcome: "cut", ...content, tokens, measured: meter.measured() };
  const body = encodeCheckpoint(soFar, unfinished.now());
  try {
    const result = await ask(tenant, sessionId, { type: "checkpoint", epoch, attempt, body });
    if (result.done === false) control.end({ keep: false });
  } catch (error) {
    log.debug({ session: sessionId, error: messageOf(error) }, "checkpoint not stored");
  }
}

/** Ends the answer for its subscribers, and returns the reply to store. */
function replyOf(
  { answer, failure, isUnheard }: MadeAnswer,
  control: Control,
  meter: AttemptMeter,
): Reply {
  const stopped = control.signal.aborted || answer?.outcome.type === "abort";
  const measured = meter.measured();
  const used = meter.used();
  if (used) answer?.describe(used);
  if (failure) answer?.close("error", failure.message);
  else answer?.close(stopped ? "abort" : "finish");
  const content = answer?.content() ?? { parts: [] };
  const reply = { ...content, tokens: estimateMessageTokens(content.parts), measured };
  if (!failure && !stopped && isUnheard) return { outcome: "completed", ...reply, unheard: true };
  if (!failure) return { outcome: stopped ? "stopped" : "completed", ...reply };
  const outcome = content.parts.length > 0 ? "cut" : "failed";
  return { outcome, ...reply, error: entryErrorOf(failure) };
}

/**
 * Aborts once not even the end of the answer is wanted. A stop that keeps the partial answer does not
 * count.
 */
function dropped(control: Control): AbortSignal {
  const gone = new AbortController();
  const check = () => {
    if (!control.kept) gone.abort(new FlotillaError("cancelled", "the turn was replaced"));
  };
  if (!control.signal.aborted) control.signal.addEventListener("abort", check, { once: true });
  return gone.signal;
}

/**
 * Reports to the session's owner when a turn begins or ends waiting for a permit of its agent's throttle,
 * so that the session's state shows it. The turn does not wait for these reports. Each has a higher count,
 * and the owner accepts only higher counts, so a late or repeated report changes nothing. A lost report is
 * made up for by the next one, or by the end of the attempt.
 */
function reportWaits(
  parts: Pick<RunnerParts, "ask" | "clock" | "random" | "log">,
  header: Pick<Header, "tenant" | "sessionId">,
  { epoch, attempt }: Pick<Turn, "epoch" | "attempt">,
  control: Control,
): WaitReporter {
  let count = 0;
  let last = new AbortController();

  const report = async (signal: AbortSignal): Promise<void> => {
    const command = { type: "turn_waiting", epoch, attempt, count } as const;
    try {
      const result = await reportToOwner(parts, header, command, signal);
      // The turn was replaced. If it has ended here already, this changes nothing.
      if (result.done === false && !signal.aborted) control.end({ keep: false });
    } catch (error) {
      // An owner of an earlier release does not know the command, and shows the turn as running.
      if (signal.aborted) return;
      const fields = { session: header.sessionId, epoch, attempt, error: messageOf(error) };
      parts.log.debug(fields, "permit wait not stored");
    }
  };

  return {
    set(waits) {
      if (waits === (count % 2 === 1)) return;
      count++;
      last.abort();
      last = new AbortController();
      // The end of the turn also ends its wait.
      if (!control.signal.aborted) void report(AbortSignal.any([last.signal, control.signal]));
    },
    stop: () => last.abort(),
  };
}
