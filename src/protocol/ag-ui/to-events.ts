import type { Part } from "../message.ts";
import {
  emptyPrint,
  isOpen,
  isSamePrint,
  maxNamed,
  minusPrint,
  noPrints,
  type PartKind,
  plusPrint,
  type Print,
  printOf,
  stagesOf,
  type AnswerPlace,
  type PartPlace,
} from "./place.ts";

/** An event of AG-UI. Clients of later versions may send others, and other fields. */
export type AgUiEvent = { readonly type: string; readonly [field: string]: unknown };

/** Tells a client by events what an answer says, as the answer grows. */
export type AnswerTeller = {
  /**
   * Tells what brings the client to these parts. False where they say something else than it was told, which
   * can't be taken back by events: it must forget the answer, and be told by a new teller.
   */
  advance(parts: readonly Part[], how: Advance): boolean;
  /** Ends what is open, and says nothing more. */
  close(): void;
};

export type Advance = {
  /** The parts only grew since the last call, so that what was told needn't be compared. */
  readonly grew?: boolean;
  /** The answer is whole: it has nothing less than what was told. */
  readonly whole?: boolean;
};

/** Takes an event, and what the client was told when it has it. */
export type Tell = (event: AgUiEvent, place: AnswerPlace) => void;

/** What was told of a part. */
type Told = {
  readonly at: number;
  readonly kind: PartKind;
  readonly type: string;
  /** Of its message or its call. */
  readonly id: string;
  /** It may be told again, with another value. */
  readonly isKept: boolean;
  stage: number;
  text: string;
  print: Print;
  /** What the text was written from. Parts that didn't change keep it, so that it is written once. */
  of?: Part;
};

/**
 * An answer becomes several messages there: each text is one, so that texts and calls keep their order. The
 * first that is told has the id of the answer, others add `#` and the number of their part. With `from`, what
 * was told before goes on, if the answer still says the same.
 */
export function createAnswerTeller(
  messageId: string,
  tell: Tell,
  from?: AnswerPlace,
): AnswerTeller {
  const told = new Map<number, Told>();
  /** Parts that aren't told whole; undefined, not at all. */
  const unfinished = new Map<number, Told | undefined>();
  /** Of those, what a client waits for the end of. */
  const open = new Map<number, Told>();
  let finished = noPrints;
  let first = from?.first;
  let through = 0;
  let parent = messageId;
  /** An attempt that was made again has not come as far yet, so what it says on is compared until it has. */
  let isBehind = false;
  /** What was told before, until the answer is known to say the same. */
  let earlier = from;

  const idAt = (at: number) => (at === first ? messageId : `${messageId}#${at}`);
  const toldSoFar = (): AnswerPlace => {
    if (earlier) return earlier;
    const so = { messageId, first: first ?? 0, through };
    if (unfinished.size > maxNamed) return { ...so, parts: [...open.values()].map(toldPart) };
    const named = [...unfinished].filter(([at]) => at < through);
    const parts = named.map(([at, each]) => (each ? toldPart(each) : untold(at)));
    return { ...so, whole: finished, parts };
  };
  const isWhole = ({ kind, stage, isKept }: Told) => stage === stagesOf(kind).all && !isKept;
  const keep = (each: Told) => {
    told.set(each.at, each);
    through = Math.max(through, each.at + 1);
    if (isOpen(each)) open.set(each.at, each);
    else open.delete(each.at);
    if (!isWhole(each)) return void unfinished.set(each.at, each);
    unfinished.delete(each.at);
    finished = plusPrint(finished, wholePrint(each));
  };
  const step = (each: Told, event: AgUiEvent) => {
    each.stage++;
    keep(each);
    tell(event, toldSoFar());
  };
  const begin = (at: number, kind: PartKind, part: Part, text: string): Told => {
    first ??= at;
    const { type, toolCallId } = part;
    const id = kind === "call" ? String(toolCallId) : idAt(at);
    const isKept = kind === "other" && typeof part["id"] === "string";
    return { at, kind, type, id, isKept, stage: 0, text, print: printOf(text) };
  };
  /** What isn't told yet, though what comes after it may be. */
  const skip = (at: number): true => {
    unfinished.set(at, undefined);
    return true;
  };

  /** What a text must say for what was told to stay true. */
  const rest = (before: string, now: string, { grew, whole }: Advance): string | undefined => {
    if (grew || now.startsWith(before)) return now.slice(before.length);
    if (whole || !before.startsWith(now)) return undefined;
    isBehind = true;
    return "";
  };

  const advanceText = (
    at: number,
    part: Part,
    kind: "text" | "reasoning",
    how: Advance & { isLast: boolean },
  ): boolean => {
    const now = textOf(kind, part);
    const known = told.get(at);
    const { begin: beginning, all } = stagesOf(kind);
    // A text that is over is compared no more while the answer grows.
    if (how.grew && known?.stage === all && known.text.length === now.length) {
      if (kind === "text") parent = known.id;
      return true;
    }
    if (!known && now === "") return skip(at);
    const each = known ?? begin(at, kind, part, "");
    const more = rest(each.text, now, how);
    if (more === undefined || (more !== "" && each.stage > beginning)) return false;
    const events = eventsOf(kind, each.id);
    while (each.stage < beginning) step(each, events[each.stage]!);
    if (more !== "") {
      each.text += more;
      each.print = printOf(more, each.print);
      tell({ type: contentTypes[kind]!, messageId: each.id, delta: more }, toldSoFar());
    }
    if (kind === "text") parent = each.id;
    const isOver = how.whole || !how.isLast || part["state"] === "done";
    while (isOver && each.stage < all && each.text === now) step(each, events[each.stage]!);
    return true;
  };

  const advanceCall = (at: number, part: Part, how: Advance): boolean => {
    const { toolCallId: id, state, input, output } = part;
    const known = told.get(at);
    if (state === "input-streaming" && !how.whole) return known !== undefined || skip(at);
    const isSame = known?.of !== undefined && known.of["input"] === input;
    const args = isSame ? known.text : textOf("call", part);
    const each = known ?? begin(at, "call", part, args);
    if (each.id !== id || each.text !== args) return false;
    each.of = part;
    const toolCallName = part.type === "dynamic-tool" ? part["toolName"] : part.type.slice(5);
    const start = { toolCallId: id, toolCallName, parentMessageId: parent };
    if (each.stage === 0) step(each, { type: "TOOL_CALL_START", ...start });
    if (each.stage === 1) step(each, { type: "TOOL_CALL_ARGS", toolCallId: id, delta: args });
    if (each.stage === 2) step(each, { type: "TOOL_CALL_END", toolCallId: id });
    if (each.stage > 3 || !hasEnded(part)) return true;
    const said = state === "output-available" ? output : (part["errorText"] ?? "denied");
    const content = typeof said === "string" ? said : JSON.stringify(said ?? null);
    const resultId = `${messageId}#${at}-result`;
    step(each, { type: "TOOL_CALL_RESULT", messageId: resultId, toolCallId: id, content });
    return true;
  };

  /** What AG-UI has no event for goes by its name. */
  const advanceOther = (at: number, part: Part): boolean => {
    const { type } = part;
    const known = told.get(at);
    if (known?.of && hasSameFields(known.of, part)) return true;
    const text = textOf("other", part);
    if (known?.text === text && known.type === type) {
      known.of = part;
      return true;
    }
    if (known && isWhole(known)) finished = minusPrint(finished, wholePrint(known));
    const each = begin(at, "other", part, text);
    each.of = part;
    step(each, { type: "CUSTOM", name: type, value: valueOf(part) ?? null });
    return true;
  };

  /** Finds in the parts what was told before, so that what follows is told and nothing twice. */
  const resume = (
    { whole: sum, parts: named, through: until }: AnswerPlace,
    parts: readonly Part[],
    { whole = false }: Advance,
  ): "found" | "behind" | "other" => {
    const isShort = ({ at, kind, length }: PartPlace) =>
      hasText(kind) && textOf(kind, parts[at]).length < length;
    if (!sum) return "other";
    if (parts.length < until || named.some(isShort)) return whole ? "other" : "behind";
    const before = new Map(named.map((each) => [each.at, each]));
    const found: Told[] = [];
    for (const [at, part] of parts.slice(0, until).entries()) {
      const kind = kindOf(part);
      const known = before.get(at);
      const stage = known?.stage ?? (kind ? stagesOf(kind).all : 0);
      if (!kind || stage === 0) continue;
      const said = textOf(kind, part);
      const text = hasText(kind) && known ? said.slice(0, known.length) : said;
      // An empty text was passed over, and is told when it says something.
      if (hasText(kind) && !known && text === "") continue;
      const each = { ...begin(at, kind, part, text), stage };
      const isSame = !known || (known.kind === kind && isSamePrint(known.print, each.print));
      if (!isSame && !each.isKept) return "other";
      // Another value of what is kept is told like any change of it.
      if (isSame) each.of = part;
      else each.text = "";
      found.push(each);
    }
    const all = found.filter(isWhole).map(wholePrint).reduce(plusPrint, noPrints);
    if (!isSamePrint(all, sum)) return "other";
    earlier = undefined;
    for (const each of found) keep(each);
    for (const { at, stage } of named) if (stage === 0) skip(at);
    through = until;
    return "found";
  };

  return {
    close() {
      let left = toldSoFar();
      for (const { at, kind, stage, callId } of left.parts.filter(isOpen)) {
        const events = eventsOf(kind, callId ?? idAt(at));
        for (const next of endingsOf(kind, stage)) {
          const parts = left.parts.map((each) =>
            each.at === at ? { ...each, stage: next + 1 } : each,
          );
          left = { ...left, parts };
          tell(events[next]!, left);
        }
      }
      earlier = left;
    },
    advance(parts, { grew = false, whole = false }) {
      if (earlier) {
        const how = resume(earlier, parts, { whole });
        if (how !== "found") return how === "behind";
      }
      const isMissing = through > parts.length;
      if (whole && isMissing) return false;
      const how = { grew: grew && !isBehind, whole };
      isBehind = isMissing;
      for (const [at, part] of parts.entries()) {
        const kind = kindOf(part);
        if (!kind) continue;
        const known = told.get(at);
        if (known && known.kind !== kind) return false;
        const isLast = at === parts.length - 1;
        const isTold =
          kind === "call"
            ? advanceCall(at, part, how)
            : kind === "other"
              ? advanceOther(at, part)
              : advanceText(at, part, kind, { ...how, isLast });
        if (!isTold) return false;
      }
      return true;
    },
  };
}

/** The ids of an answer's messages there. */
export function isOfAnswer(id: string, messageId: string): boolean {
  return id === messageId || id.startsWith(`${messageId}#`);
}

/** The id of the answer that a message there is of. */
export function answerOf(id: string): string {
  return id.split("#")[0]!;
}

const contentTypes: Readonly<Record<string, string>> = {
  text: "TEXT_MESSAGE_CONTENT",
  reasoning: "REASONING_MESSAGE_CONTENT",
};

/** Whether two copies of a part have the very same values. Values that changed are others. */
function hasSameFields(one: Part, other: Part): boolean {
  const fields = Object.keys(other);
  const isSame = (field: string) => one[field] === other[field];
  return fields.length === Object.keys(one).length && fields.every(isSame);
}

function hasEnded({ state, preliminary }: Part): boolean {
  if (state === "output-available") return preliminary !== true;
  return state === "output-error" || state === "output-denied";
}

/** Undefined for what is never told. */
function kindOf({ type, toolCallId }: Part): PartKind | undefined {
  if (type === "text" || type === "reasoning") return type;
  if (type === "dynamic-tool" || type.startsWith("tool-"))
    return typeof toolCallId === "string" ? "call" : undefined;
  return type === "step-start" ? undefined : "other";
}

function hasText(kind: PartKind): boolean {
  return kind === "text" || kind === "reasoning";
}

/** What is told of a part, as text: the input of a call, the value of another. */
function textOf(kind: PartKind, part: Part | undefined): string {
  const said = part?.["text"];
  if (hasText(kind)) return typeof said === "string" ? said : "";
  if (kind === "call") return JSON.stringify(part?.["input"] ?? {});
  return JSON.stringify(part && valueOf(part)) ?? "null";
}

function valueOf(part: Part): unknown {
  return part.type.startsWith("data-") ? part["data"] : part;
}

function toldPart({ at, kind, stage, text: { length }, print, id }: Told): PartPlace {
  return { at, kind, stage, length, print, ...(kind === "call" && { callId: id }) };
}

function untold(at: number): PartPlace {
  return { at, kind: "other", stage: 0, length: 0, print: emptyPrint };
}

function wholePrint({ at, type, id, text: { length }, print }: Told): Print {
  return printOf(`${at} ${length} ${type} ${id}`, print);
}

/** The events that begin and end a part, each at its stage. */
function eventsOf(kind: PartKind, id: string): AgUiEvent[] {
  if (kind === "call") {
    const end = { type: "TOOL_CALL_END", toolCallId: id };
    return [end, end, end];
  }
  const messageId = id;
  if (kind === "text")
    return [
      { type: "TEXT_MESSAGE_START", messageId, role: "assistant" },
      { type: "TEXT_MESSAGE_END", messageId },
    ];
  return [
    { type: "REASONING_START", messageId },
    { type: "REASONING_MESSAGE_START", messageId, role: "reasoning" },
    { type: "REASONING_MESSAGE_END", messageId },
    { type: "REASONING_END", messageId },
  ];
}

/** The stages that are left where a part is ended at one. */
function endingsOf(kind: PartKind, stage: number): number[] {
  if (kind === "call") return [2];
  if (kind === "text") return [1];
  return stage === 2 ? [2, 3] : [3];
}
