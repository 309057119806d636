import { type Entry, isTurn, type SessionState } from "../../../protocol/message.ts";
import type { StartedFacts, TurnFacts } from "../../asks/sessions.ts";
import { isToolPart, openCallOf, toolNameOf } from "./conversation.ts";

/** What a turn did from one time to another. */
export type TurnStretch = {
  readonly kind: "queued" | "throttled" | "first token" | "stream";
  readonly fromMs: number;
  readonly toMs: number;
  /** It goes on. */
  readonly isOpen: boolean;
};

type Span = { readonly key: string; readonly fromMs: number; readonly toMs: number };

export type TurnRow = Span & {
  readonly type: "turn";
  readonly turn: TurnFacts;
  readonly isOpen: boolean;
  readonly stretches: readonly TurnStretch[];
  /** The tools that its answer calls. */
  readonly tools: readonly string[];
  /** The pod whose attempt at the same turn this one goes on with. */
  readonly tookOverFrom: string | undefined;
};

/** A call that waits, or has waited, for a person. */
export type WaitRow = Span & {
  readonly type: "wait";
  readonly tool: string;
  readonly signal: string | undefined;
  readonly isOpen: boolean;
  readonly outcome: "approved" | "denied" | "answered" | "over" | undefined;
  readonly by: string | undefined;
};

export type AxisRow =
  | TurnRow
  | WaitRow
  | (Span & { readonly type: "started"; readonly started: StartedFacts })
  | (Span & { readonly type: "stop" | "summary"; readonly by: string })
  /** Nothing went on. */
  | (Span & { readonly type: "gap" });

type CallWait = Pick<WaitRow, "key" | "tool" | "signal" | "outcome" | "by"> & {
  readonly epoch: number;
  readonly sinceMs: number;
  readonly untilMs: number | undefined;
};

/** What the entries of a log say of its turns. */
export type AxisFacts = {
  /** When that was written which a turn answers, by its epoch. */
  readonly requestedAtMs: ReadonlyMap<number, number>;
  /** The same for what isn't answered yet. */
  readonly openRequestedAtMs: number | undefined;
  readonly tools: ReadonlyMap<number, readonly string[]>;
  readonly waits: readonly CallWait[];
  readonly marks: readonly Extract<AxisRow, { type: "stop" | "summary" }>[];
};

type Draft = { -readonly [Field in keyof CallWait]: CallWait[Field] };

/** Reads the entries once, in the order of the log, which no clock can turn. */
export function axisFacts(entries: readonly Entry[]): AxisFacts {
  const requestedAtMs = new Map<number, number>();
  const tools = new Map<number, readonly string[]>();
  const waits = new Map<string, Draft>();
  const marks: AxisFacts["marks"][number][] = [];
  let unanswered: Entry[] = [];
  const resultAtMs = new Map<string, number>();

  for (const entry of entries) {
    const { seq, kind, role, author, messageId, epoch, atMs, results } = entry;
    if (kind === "stop" || kind === "summary") {
      marks.push({ type: kind, key: `${kind} ${seq}`, fromMs: atMs, toMs: atMs, by: author });
    } else if (results) {
      resultAtMs.set(results.messageId, atMs);
      for (const result of results.results) {
        const wait = waits.get(callKey(results.messageId, result.toolCallId));
        if (!wait || wait.outcome) continue;
        wait.outcome =
          "approved" in result ? (result.approved ? "approved" : "denied") : "answered";
        wait.by = author;
        wait.untilMs = atMs;
      }
    } else if (role === "user") {
      unanswered.push(entry);
    } else if (role === "assistant" && epoch !== undefined) {
      const { upToSeq } = entry;
      const first =
        upToSeq === undefined ? undefined : unanswered.find((each) => each.seq <= upToSeq);
      const asked = first?.atMs ?? resultAtMs.get(messageId);
      if (asked !== undefined && !requestedAtMs.has(epoch)) requestedAtMs.set(epoch, asked);
      if (upToSeq !== undefined) unanswered = unanswered.filter((each) => each.seq > upToSeq);
      resultAtMs.delete(messageId);
      tools.set(epoch, [...new Set(entry.parts.filter(isToolPart).map(toolNameOf))]);
      const open = entry.parts.flatMap((part) => openCallOf(part, messageId) ?? []);
      const isOpen = new Set(open.map(({ toolCallId }) => callKey(messageId, toolCallId)));
      for (const wait of waits.values()) {
        // The answer went on without it, as when the time for a signal was over.
        if (wait.key.startsWith(`${messageId} `) && !wait.outcome && !isOpen.has(wait.key)) {
          wait.outcome = "over";
          wait.untilMs = atMs;
        }
      }
      for (const { toolCallId, tool, signal } of entry.outcome === "completed" ? open : []) {
        const key = callKey(messageId, toolCallId);
        if (waits.has(key)) continue;
        const call = { key, tool, signal, outcome: undefined, by: undefined };
        waits.set(key, { ...call, epoch, sinceMs: atMs, untilMs: undefined });
      }
    }
  }
  const results = [...resultAtMs.values()];
  return {
    requestedAtMs,
    openRequestedAtMs: unanswered[0]?.atMs ?? results.at(-1),
    tools,
    waits: [...waits.values()],
    marks,
  };
}

export type AxisParts = {
  readonly facts: AxisFacts;
  readonly turns: readonly TurnFacts[];
  readonly started: readonly StartedFacts[];
  readonly state: SessionState | undefined;
  /** What was seen of turns while they went on, by `epoch.attempt`. */
  readonly throttledMs: ReadonlyMap<string, number>;
  readonly firstSeenAtMs: ReadonlyMap<string, number>;
  readonly nowMs: number;
};

// A pause that a person takes to read isn't worth a line.
const minGapMs = 60_000;
/** So many rows are drawn at most. */
export const maxAxisRows = 150;

/**
 * Turns, waits for people, tasks and what else happened on one axis, the newest first. Turns follow each
 * other by their numbers: where clocks differ or step back, none begins before the one before has ended.
 */
export function axisOf(parts: AxisParts): { rows: AxisRow[]; isCut: boolean } {
  const { facts, started, nowMs } = parts;
  const turns = turnRows(parts);
  const endOf = new Map(turns.map(({ turn, toMs }) => [turn.epoch, toMs]));
  const waits = facts.waits.map((wait): WaitRow => {
    const { key, tool, signal, outcome, by, epoch, sinceMs, untilMs } = wait;
    const isOpen = outcome === undefined;
    const fromMs = endOf.get(epoch) ?? sinceMs;
    const toMs = Math.max(fromMs, untilMs ?? nowMs);
    return { type: "wait", key, fromMs, toMs, tool, signal, isOpen, outcome, by };
  });
  const tasks = started.map((each): AxisRow => {
    const { taskId: key, atMs } = each;
    return { type: "started", key, fromMs: atMs, toMs: atMs, started: each };
  });
  const all = [...turns, ...waits, ...facts.marks, ...tasks].toSorted(
    (one, other) => one.fromMs - other.fromMs,
  );
  const rows = withGaps(all.slice(-maxAxisRows)).toReversed();
  return { rows, isCut: all.length > maxAxisRows };
}

function turnRows({
  facts,
  turns,
  state,
  throttledMs,
  firstSeenAtMs,
  nowMs,
}: AxisParts): TurnRow[] {
  const ordered = turns.toSorted(
    (one, other) => one.epoch - other.epoch || one.attempt - other.attempt,
  );
  let at = -Infinity;
  return ordered.map((turn, index) => {
    const { epoch, attempt, beganAtMs, firstChunkAtMs, endedAtMs } = turn;
    const key = `${epoch}.${attempt}`;
    const before = ordered[index - 1];
    const isAgain = before?.epoch === epoch;
    const isOpen = endedAtMs === null;
    const beginMs = Math.max(at, beganAtMs);
    const answered =
      facts.requestedAtMs.get(epoch) ?? (isOpen ? facts.openRequestedAtMs : undefined);
    const requestedAtMs = isAgain ? at : answered;
    const fromMs = Math.min(beginMs, Math.max(at, requestedAtMs ?? beginMs));
    const toMs = Math.max(beginMs, endedAtMs ?? nowMs);
    const first = firstChunkAtMs ?? (isOpen ? firstSeenAtMs.get(key) : undefined);
    const firstMs = first === undefined ? toMs : Math.min(toMs, Math.max(beginMs, first));
    const isWaiting =
      isOpen &&
      state?.state === "waiting" &&
      isTurn(state) &&
      state.epoch === epoch &&
      state.attempt === attempt;
    const waited = isWaiting ? Infinity : (throttledMs.get(key) ?? 0);
    const permitMs = Math.min(firstMs, beginMs + waited);
    const stretch = (kind: TurnStretch["kind"], from: number, to: number): TurnStretch[] => {
      const goesOn = isOpen && to === toMs && isLastOf(kind, { isWaiting, first });
      return to > from || goesOn ? [{ kind, fromMs: from, toMs: to, isOpen: goesOn }] : [];
    };
    at = toMs;
    return {
      type: "turn",
      key: `turn ${key}`,
      turn,
      fromMs,
      toMs,
      isOpen,
      stretches: [
        ...stretch("queued", fromMs, beginMs),
        ...stretch("throttled", beginMs, permitMs),
        ...stretch("first token", permitMs, firstMs),
        ...stretch("stream", firstMs, toMs),
      ],
      tools: facts.tools.get(epoch) ?? [],
      tookOverFrom:
        isAgain && before.podId !== turn.podId ? (before.podId ?? undefined) : undefined,
    };
  });
}

/** Which stretch of a turn under way is the one that goes on. */
function isLastOf(
  kind: TurnStretch["kind"],
  { isWaiting, first }: { isWaiting: boolean; first: number | undefined },
): boolean {
  if (isWaiting) return kind === "throttled";
  return kind === (first === undefined ? "first token" : "stream");
}

/** Puts a row wherever nothing went on for long. */
function withGaps(rows: readonly AxisRow[]): AxisRow[] {
  let coveredMs = Infinity;
  return rows.flatMap((row): AxisRow[] => {
    const gap = {
      type: "gap",
      key: `gap ${row.key}`,
      fromMs: coveredMs,
      toMs: row.fromMs,
    } as const;
    const isLong = row.fromMs - coveredMs >= minGapMs;
    coveredMs = coveredMs === Infinity ? row.toMs : Math.max(coveredMs, row.toMs);
    return isLong ? [gap, row] : [row];
  });
}

function callKey(messageId: string, toolCallId: string): string {
  return `${messageId} ${toolCallId}`;
}

/** The tokens and the cost of some turns together; a cost only if all that used tokens have one. */
export function spentOn(turns: readonly TurnFacts[]): {
  readonly input: number;
  readonly output: number;
  readonly cost: number | undefined;
} {
  const used = turns.flatMap(({ usage }) => usage ?? []);
  const sum = (of: (each: (typeof used)[number]) => number) =>
    used.reduce((total, each) => total + of(each), 0);
  const isPriced = used.length > 0 && used.every(({ cost }) => cost !== null);
  return {
    input: sum(({ input }) => input),
    output: sum(({ output }) => output),
    cost: isPriced ? sum(({ cost }) => cost ?? 0) : undefined,
  };
}

/** A cost with as many digits as matter: `1.25`, `0.0042`. */
export function costText(cost: number): string {
  if (cost === 0) return "0";
  return cost >= 1 ? cost.toFixed(2) : String(Number(cost.toPrecision(2)));
}
