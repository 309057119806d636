import { FlotillaError } from "../base/errors.ts";
import { isJsonObject, type Json } from "../base/json.ts";
import type { Step } from "../steps/model.ts";
import { type Unfinished, unfinishedOf } from "../steps/unfinished.ts";
import { estimateTokens, type ModelPart, partsOfContent } from "./content.ts";

/**
 * What becomes of a call to a model whose process died in it: `continue` keeps what it had said and asks
 * for the rest, `again` makes the call again.
 */
export type Interrupted = "continue" | "again";

/** What a call had said when it was last kept, and what that has used, as far as it can be estimated. */
type Half = {
  /** Text, and reasoning that is no more than text. The last part is the text to go on with. */
  readonly content: readonly ModelPart[];
  readonly inputTokens: number;
  readonly outputTokens: number;
};

type Asked = { readonly prompt?: unknown; readonly responseFormat?: unknown };

export type Words = ReturnType<typeof wordsOf>;

/** Less is said again in a moment. */
const minChars = 200;
/** What is kept is stored every second. */
const maxChars = 200_000;
/** A run of characters that is longer than this is no word. */
const maxWordChars = 100;

export function checkInterrupted(interrupted: unknown): void {
  if (interrupted === undefined || interrupted === "continue" || interrupted === "again") return;
  throw new FlotillaError(
    "invalid_option",
    `durable: interrupted must be "continue" or "again", not ${JSON.stringify(interrupted)}`,
  );
}

/**
 * The words of one call to a model. They are kept as they come, and where an earlier attempt has kept some
 * the call goes on with them: both are joined into one text, for the reader as for the journal.
 */
export function wordsOf(step: Step, key: string, interrupted: Interrupted | undefined) {
  const unfinished = unfinishedOf(step);
  const least = interrupted === "continue" ? 1 : minChars;
  let half: Half | undefined;

  return {
    /**
     * Begins the call, and returns what to ask. `content` is what it has said so far, and `join` gets each
     * part of the stream and returns what to say for it.
     */
    begin<Params extends object>(params: Params, content: () => readonly ModelPart[]) {
      unfinished?.keep(key, undefined);
      const isKept = unfinished !== undefined && interrupted !== "again" && isPlainCall(params);
      half = isKept ? halfIn(unfinished.kept(key)) : undefined;
      const joiner = half && joinAfter(half, () => unfinished?.settle(key));
      const asked = joiner ? { ...params, prompt: joiner.promptAfter(params) } : params;
      if (!joiner) unfinished?.settle(key);
      const hear = isKept ? keepIn(unfinished, key, { half, least, asked, content }) : undefined;
      return {
        asked: asked as Params,
        join(part: ModelPart): readonly ModelPart[] {
          hear?.(part);
          return joiner ? joiner.join(part) : [part];
        },
      };
    },
    /** What the call has used before this attempt. */
    get used() {
      return { inputTokens: half?.inputTokens ?? 0, outputTokens: half?.outputTokens ?? 0 };
    },
    /** The call is stored, so that nothing of it has to be kept. */
    end(): void {
      unfinished?.keep(key, undefined);
      unfinished?.settle(key);
    },
  };
}

/** A text that is to be parsed can't be cut and joined. */
function isPlainCall(params: Asked): boolean {
  const { prompt, responseFormat } = params;
  return (
    Array.isArray(prompt) && !(isJsonObject(responseFormat) && responseFormat["type"] === "json")
  );
}

/** Keeps what the call says, until a part comes that can't be gone on with. */
function keepIn(
  unfinished: Unfinished,
  key: string,
  call: {
    readonly half: Half | undefined;
    readonly least: number;
    readonly asked: Asked;
    readonly content: () => readonly ModelPart[];
  },
): (part: ModelPart) => void {
  const { half, least, asked, content } = call;
  let isPlain = true;
  unfinished.keep(key, () => {
    if (!isPlain) return undefined;
    const said = content();
    const parts = plainParts(said.slice(0, said.findLastIndex(isText) + 1));
    const chars = charsOf(parts);
    if (chars > maxChars) return undefined;
    // What was kept is only replaced by what has come further.
    const atLeast = half ? charsOf(half.content) + 1 : least;
    if (chars < atLeast) return half as unknown as Json | undefined;
    return {
      content: parts as unknown as Json,
      inputTokens: (half?.inputTokens ?? 0) + estimateTokens(asked.prompt),
      outputTokens: estimateTokens(parts),
    };
  });
  return (part) => {
    isPlain &&= mayGoOn(part);
  };
}

const plainTypes = /^(text|reasoning)-(start|delta|end)$/;
const passingTypes = new Set(["stream-start", "response-metadata", "raw", "finish"]);

/**
 * Whether a call that ends behind this part can be gone on with. Not once a tool is to be called; nor with
 * reasoning that its provider has signed or refers to, which can't be parted from the rest of its answer.
 */
function mayGoOn(part: ModelPart): boolean {
  if (!plainTypes.test(part.type)) return passingTypes.has(part.type);
  return part.type.startsWith("text") || part["providerMetadata"] === undefined;
}

/** Without what the provider has noted: it refers to an answer that never ended. */
function plainParts(content: readonly ModelPart[]): ModelPart[] {
  return content.map(({ type, id, text }) => ({ type, id: String(id), text: String(text) }));
}

function charsOf(content: readonly ModelPart[]): number {
  return content.filter(isText).reduce((sum, { text }) => sum + String(text).length, 0);
}

function isText({ type }: ModelPart): boolean {
  return type === "text";
}

function halfIn(kept: Json | undefined): Half | undefined {
  if (!isJsonObject(kept)) return undefined;
  const { content, inputTokens, outputTokens } = kept;
  if (!Array.isArray(content) || !content.every(isJsonObject)) return undefined;
  const parts = plainParts(content as unknown as ModelPart[]);
  if (parts.at(-1)?.type !== "text") return undefined;
  return { content: parts, inputTokens: Number(inputTokens), outputTokens: Number(outputTokens) };
}

/** Joins the parts of a stream to what was said before. */
function joinAfter({ content }: Half, onSaid: () => void) {
  const last = content.at(-1)!;
  const id = String(last["id"]);
  const whole = String(last["text"]);
  const cut = wordStart(whole);
  const begunWord = whole.slice(cut);
  /** Undefined once what was said before has been said again. */
  let waiting: string | undefined = "";
  /** The id of the text that is joined: undefined before it begins. */
  let joined: string | undefined;
  let isOver = false;

  /**
   * The model says a word again that had begun, so that it needs no space in front. What was said before
   * goes with it: a page that has the half word doesn't lose it.
   */
  const sayBefore = (more = waiting): ModelPart[] => {
    if (waiting === undefined) return [];
    const text = whole.slice(0, cut) + more;
    waiting = undefined;
    onSaid();
    return [...partsOfContent(content.slice(0, -1)), { type: "text-start", id }, delta(text)];
  };
  const delta = (text: string): ModelPart => ({ type: "text-delta", id, delta: text });
  const end = (): ModelPart[] => {
    if (isOver) return [];
    isOver = true;
    return [...sayBefore(waiting || begunWord), { type: "text-end", id }];
  };

  const joinText = (part: ModelPart): ModelPart[] => {
    if (part.type === "text-end") return end();
    if (part.type !== "text-delta") return [];
    const more = String(part["delta"]);
    if (waiting === undefined) return [delta(more)];
    waiting += more;
    return waiting.length < begunWord.length ? [] : sayBefore();
  };

  return {
    /** The conversation with a note behind it that asks for the rest. Models refuse to end it themselves. */
    promptAfter({ prompt }: Asked): unknown[] {
      const said = content.filter(isText).with(-1, {
        ...last,
        text: whole.slice(0, cut),
      });
      const text = said.map((part) => String(part["text"])).join("");
      return [
        ...(prompt as unknown[]),
        { role: "assistant", content: [{ type: "text", text }] },
        {
          role: "user",
          content: [{ type: "text", text: noteFor(begunWord) }],
          // Models pass over it. Middleware and models of tests can tell the note from a user's words.
          providerOptions: { flotilla: { interrupted: "continue" } },
        },
      ];
    },
    join(part: ModelPart): ModelPart[] {
      const { type } = part;
      if (isOver || type === "stream-start" || type === "response-metadata" || type === "raw") {
        return [part];
      }
      if (type === "text-start" && joined === undefined) joined = String(part["id"]);
      const isJoined = type.startsWith("text-") && String(part["id"]) === joined;
      if (isJoined) return joinText(part);
      // A text that has begun may be followed by others before it ends.
      const isAside = joined !== undefined || type.startsWith("reasoning-");
      const isEnd = type === "finish" || type.startsWith("tool-");
      return [...(isAside && !isEnd ? sayBefore() : end()), part];
    },
  };
}

/** Where the last word begins; the end of the text if it ends between words. */
function wordStart(text: string): number {
  for (let at = text.length; at > 0 && text.length - at <= maxWordChars; at--) {
    if (/\s/.test(text[at - 1]!)) return at;
  }
  return text.length;
}

function noteFor(begunWord: string): string {
  const next = begunWord === "" ? "" : ` The next word began with ${JSON.stringify(begunWord)}.`;
  return `The connection was lost while you wrote the answer above, and its reader has it as it stands. Write only what is missing, from exactly where it ends: repeat nothing, don't begin anew, and don't mention the interruption.${next}`;
}
