/**
 * A place in the events of a run: after which entry of the log it began, and what was told of the answer
 * so far. It is the id of an event, so that a reader that was cut off is told what comes after it.
 */
export type RunPlace = {
  readonly seq: number;
  /** Whether the run was told to its end. */
  readonly isOver: boolean;
  readonly answer?: AnswerPlace;
};

/** How much of an answer was told. Of the parts that were told whole it has a print alone. */
export type AnswerPlace = {
  readonly messageId: string;
  /** The part that was told first, whose message has the id of the answer. */
  readonly first: number;
  /** The parts that were told are before it. */
  readonly through: number;
  /** What the parts that were told whole come to; undefined where too many others are to be named. */
  readonly whole?: Print | undefined;
  /** All others before `through`. */
  readonly parts: readonly PartPlace[];
};

export type PartKind = "text" | "reasoning" | "call" | "other";

export type PartPlace = {
  readonly at: number;
  readonly kind: PartKind;
  /** How many of its events were told, those with its text as one. */
  readonly stage: number;
  /** The length of its text so far, and a print of it. */
  readonly length: number;
  readonly print: Print;
  /** Of a call whose end wasn't told, since its events name it. */
  readonly callId?: string | undefined;
};

/** 64 bits that tell texts apart, and grow with them. It is no secret and no signature. */
export type Print = readonly [number, number];

export const emptyPrint: Print = [0x2c1b3c6d, 0x297a2d39];
export const noPrints: Print = [0, 0];
const kinds: Readonly<Record<PartKind, string>> = {
  text: "t",
  reasoning: "r",
  call: "c",
  other: "o",
};
/** Where more parts aren't told whole, they aren't named, and a reader that comes back is told anew. */
export const maxNamed = 32;
/** As a header it must pass every server on the way. */
const maxPlaceChars = 4_000;

export function printOf(text: string, before: Print = emptyPrint): Print {
  let [one, other] = before;
  for (let at = 0; at < text.length; at++) {
    const unit = text.charCodeAt(at);
    one = Math.imul(one ^ unit, 0x01000193);
    other = Math.imul((other << 7) ^ (other >>> 25) ^ unit, 0x5bd1e995);
  }
  return [one >>> 0, other >>> 0];
}

export function isSamePrint(one: Print, other: Print): boolean {
  return one[0] === other[0] && one[1] === other[1];
}

/** The prints of parts are summed, so that one of them can change without the others being read. */
export function plusPrint(sum: Print, one: Print): Print {
  return [(sum[0] + one[0]) >>> 0, (sum[1] + one[1]) >>> 0];
}

export function minusPrint(sum: Print, one: Print): Print {
  return [(sum[0] - one[0]) >>> 0, (sum[1] - one[1]) >>> 0];
}

/** The place as text for a header, undefined where it would be too long for one. */
export function runPlaceText({ seq, isOver, answer }: RunPlace): string | undefined {
  if (isOver) return `${seq}:end`;
  if (!answer) return String(seq);
  const { messageId, first, through, whole, parts } = answer;
  const list = parts.map(({ at, kind, stage, length, print, callId }) => {
    const isCut = kind === "call" && isOpen({ kind, stage });
    const id = isCut ? `.${encoded(callId ?? "")}` : "";
    return `${at}.${kinds[kind]}.${stage}.${length}.${printText(print)}${id}`;
  });
  const sum = whole ? printText(whole) : "";
  const text = [seq, first, through, sum, list.join(","), encoded(messageId)].join(":");
  return text.length <= maxPlaceChars ? text : undefined;
}

/** Undefined for what isn't a place. */
export function runPlaceIn(text: string): RunPlace | undefined {
  const [head = "", ...fields] = text.split(":");
  const seq = numberIn(head);
  if (seq === undefined || text.length > maxPlaceChars) return undefined;
  if (fields.length === 0) return { seq, isOver: false };
  if (fields.length === 1) return fields[0] === "end" ? { seq, isOver: true } : undefined;
  const [first, through] = fields.slice(0, 2).map(numberIn);
  const [sum = "", list = "", id = "", ...more] = fields.slice(2);
  const messageId = decoded(id);
  const whole = printIn(sum);
  const parts = list === "" ? [] : list.split(",").map(partIn);
  const isWrong = more.length > 0 || messageId === undefined || (sum !== "" && !whole);
  if (isWrong || first === undefined || through === undefined) return undefined;
  if (!parts.every((part) => part !== undefined && part.at < through)) return undefined;
  return {
    seq,
    isOver: false,
    answer: { messageId, first, through, whole, parts: parts as PartPlace[] },
  };
}

/** How many events begin a part, say what it says, and end it. */
const stages: Readonly<Record<PartKind, { begin: number; all: number }>> = {
  text: { begin: 1, all: 2 },
  reasoning: { begin: 2, all: 4 },
  // Its result comes when it comes.
  call: { begin: 1, all: 4 },
  other: { begin: 0, all: 1 },
};

export function stagesOf(kind: PartKind): { begin: number; all: number } {
  return stages[kind];
}

/** Whether a client waits for events that end it. */
export function isOpen({ kind, stage }: Pick<PartPlace, "kind" | "stage">): boolean {
  return stage > 0 && stage < (kind === "call" ? 3 : stages[kind].all);
}

function partIn(text: string): PartPlace | undefined {
  const [atText = "", letter, stageText = "", lengthText = "", printWord = "", id, ...more] =
    text.split(".");
  const [at, stage, length] = [atText, stageText, lengthText].map(numberIn);
  const kind = (Object.keys(kinds) as PartKind[]).find((each) => kinds[each] === letter);
  const print = printIn(printWord);
  const callId = id === undefined ? undefined : decoded(id);
  if (at === undefined || stage === undefined || length === undefined || !kind || !print)
    return undefined;
  if (more.length > 0 || stage > stages[kind].all) return undefined;
  const isCut = kind === "call" && isOpen({ kind, stage });
  if (isCut !== (callId !== undefined)) return undefined;
  return { at, kind, stage, length, print, callId };
}

function numberIn(text: string): number | undefined {
  return /^\d{1,15}$/.test(text) ? Number(text) : undefined;
}

function printText([one, other]: Print): string {
  return one.toString(16).padStart(8, "0") + other.toString(16).padStart(8, "0");
}

function printIn(text: string): Print | undefined {
  if (!/^[0-9a-f]{16}$/.test(text)) return undefined;
  return [Number.parseInt(text.slice(0, 8), 16), Number.parseInt(text.slice(8), 16)];
}

/** Without the characters that part a place. */
function encoded(text: string): string {
  return encodeURIComponent(text.toWellFormed()).replaceAll(".", "%2E");
}

function decoded(text: string): string | undefined {
  try {
    return text === "" ? undefined : decodeURIComponent(text);
  } catch {
    return undefined;
  }
}
