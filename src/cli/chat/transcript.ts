import type { Chunk } from "../../protocol/chunk.ts";
import { type Entry, isTurn, type Part, type SessionState } from "../../protocol/message.ts";
import { type Waiting, waitingAfter } from "../../protocol/waiting.ts";
import type { JoinPosition, FeedEvent, SessionView } from "../../sessions/service.ts";
import { sanitize, oneLine } from "../output.ts";

/** Where a conversation is shown. */
export type TranscriptOutput = {
  /** A line of its own. */
  line(text: string): void;
  /** More of the answer that is being made, on the line that it has reached. */
  more(text: string): void;
  /** Ends the line of an answer, if one is open. */
  end(): void;
};

export type TranscriptOptions = {
  output: TranscriptOutput;
  /** `live` shows answers as they are made, `lines` each message on a line, `json` as JSON. */
  form: "live" | "lines" | "json";
};

/** Answers that are shown while they are made need to be told from each other. */
type LiveText = {
  readonly epoch: number;
  readonly attempt: number;
  nextIndex: number;
  text: string;
  /** Where its turn stands in line, while it waits for a permit. */
  waiting: Waiting | undefined;
};

/** Turns what happens in a session into what is shown of it, and keeps the place it has come to. */
export function createTranscript({ output, form }: TranscriptOptions) {
  const position: { lastSeq: number; incarnation?: string; lastMessageId?: string } = {
    lastSeq: 0,
  };
  /** Messages that were typed here, and are on the screen already. */
  const typed = new Set<string>();
  let state: SessionState = { state: "idle" };
  let live: LiveText | undefined;
  /** What of the answer is on the screen. */
  let printed = "";
  let stopper = "";

  const show = (text: string, agent: string): void => {
    if (text.startsWith(printed)) {
      if (printed === "" && text !== "") output.more(`${nameOf(agent)}: `);
      output.more(sanitize(text.slice(printed.length)));
    } else {
      output.end();
      output.line("(it starts over)");
      output.more(`${nameOf(agent)}: ${sanitize(text)}`);
    }
    printed = text;
  };

  const chunks = (event: Extract<FeedEvent, { type: "chunks" }>): void => {
    const { epoch, attempt, index } = event;
    if (index === 0) {
      const isKnown = live?.epoch === epoch && live.attempt === attempt;
      const waiting = isKnown ? live?.waiting : undefined;
      live = { epoch, attempt, nextIndex: 0, text: "", waiting };
    }
    // What comes after a gap makes no sense; the whole answer comes when it is stored.
    if (live?.epoch !== epoch || live.attempt !== attempt || live.nextIndex !== index) return;
    live.nextIndex = event.nextIndex ?? index + event.chunks.length;
    for (const chunk of event.chunks) live.text = withChunk(live.text, chunk);
    const waiting = waitingAfter(live.waiting, event.chunks);
    // Said once: the line may move every second.
    if (form === "live" && waiting && !live.waiting) output.line(waitText(waiting));
    live.waiting = waiting;
    const agent = isTurn(state) ? state.agent : "agent";
    // Half of a character waits for its other half.
    const whole = live.text.replace(/[\ud800-\udbff]$/, "");
    if (form === "live" && whole !== "") show(whole, agent);
  };

  const entry = (each: Entry): void => {
    if (form === "json") return output.line(JSON.stringify(each));
    if (each.epoch !== undefined && each.role === "assistant" && printed !== "")
      return finish(each);
    // The answer is half on the screen: who stopped it is said at its end.
    if (each.kind === "stop" && printed !== "") return void (stopper = nameOf(each.author));
    if (typed.delete(each.messageId)) return;
    const line = [entryText(each), outcomeText(each)].filter((part) => part !== "").join(" ");
    if (each.kind === "stop") return output.line(`(${nameOf(each.author)} ${line})`);
    const author = each.kind === "message" ? nameOf(each.author) : `(${each.kind})`;
    output.line(`${author}: ${form === "lines" ? line.replaceAll("\n", "\\n") : line}`);
  };

  /** The stored answer is what counts, so what the screen has of it is made to end like it. */
  const finish = (answer: Entry): void => {
    const texts = answer.parts.filter(({ type }) => type === "text");
    const text = texts.map(textIn).join("\n");
    if (text.startsWith(printed)) output.more(sanitize(text.slice(printed.length)));
    output.end();
    if (!text.startsWith(printed)) output.line(`${nameOf(answer.author)}: ${sanitize(text)}`);
    for (const part of answer.parts) {
      const other = part.type === "text" || part.type === "reasoning" ? "" : partText(part);
      if (other !== "") output.line(other);
    }
    const outcome = outcomeText(answer);
    const isNamed = stopper !== "" && answer.outcome === "stopped";
    if (outcome !== "") output.line(isNamed ? `(stopped by ${stopper})` : outcome);
    stopper = "";
    printed = "";
    live = undefined;
  };

  return {
    get place(): JoinPosition {
      return { ...position };
    },
    get state(): SessionState {
      return state;
    },
    /** Begins where the last few entries do, so that a long history isn't shown again. */
    beginAfter(seq: number): void {
      position.lastSeq = seq;
    },
    /** A message that was typed here needs no line. */
    typed(messageId: string): void {
      if (form === "live") typed.add(messageId);
    },
    notice(text: string): void {
      output.end();
      if (form !== "json") output.line(text);
    },
    /** Gives the entries that are new. */
    event(event: FeedEvent): Entry[] {
      switch (event.type) {
        case "joined":
          state = event.state;
          position.incarnation = event.incarnation;
          return [];
        case "reset":
          position.lastSeq = 0;
          delete position.lastMessageId;
          this.notice("(the session isn't what it was here: all of it comes again)");
          return [];
        case "state":
          state = event.state;
          return [];
        case "chunks":
          chunks(event);
          return [];
        case "entries": {
          const fresh = event.entries.filter(({ seq }) => seq > position.lastSeq);
          for (const each of fresh) {
            position.lastSeq = each.seq;
            position.lastMessageId = each.messageId;
            entry(each);
          }
          return fresh;
        }
        case "deleted":
          this.notice("(the session was deleted)");
          return [];
      }
    },
  };
}

export type Transcript = ReturnType<typeof createTranscript>;

/** How many entries of an earlier conversation are shown. */
const maxHistoryShown = 20;

export function firstSeq({ lastSeq }: SessionView): number {
  return Math.max(0, lastSeq - maxHistoryShown);
}

function nameOf(author: string): string {
  return sanitize(oneLine(author, 80));
}

function waitText({ ahead, aboutMs }: Waiting): string {
  const before = ahead === 0 ? "next in line" : `${ahead} before it`;
  const about =
    aboutMs === undefined ? "" : `, about ${Math.max(1, Math.round(aboutMs / 1_000))} s`;
  return `(waiting for a permit: ${before}${about})`;
}

/** Only what is said is shown while it is made; what else there is comes with the stored answer. */
function withChunk(text: string, { type, delta }: Chunk): string {
  if (type === "text-start") return text === "" ? "" : `${text}\n`;
  return type === "text-delta" && typeof delta === "string" ? text + delta : text;
}

const shortChars = 200;

/** What an entry says, for people. Everything in it was written by others. */
export function entryText(entry: Entry): string {
  if (entry.kind === "tool_result") {
    const results = entry.results?.results ?? [];
    return results.map((result) => `[result ${shortJson(result)}]`).join("\n");
  }
  if (entry.kind === "stop") return "stopped the answer";
  return entry.parts
    .map(partText)
    .filter((each) => each !== "")
    .join("\n");
}

function partText(part: Part): string {
  const { type } = part;
  if (type === "text") return sanitize(textIn(part));
  if (type === "reasoning") return `(thinks) ${sanitize(textIn(part))}`;
  if (type === "step-start") return "";
  if (type === "file") return `[file ${shortText(part["filename"] ?? part["mediaType"] ?? "")}]`;
  if (type === "source-url") return `[source ${shortText(part["url"])}]`;
  if (type === "dynamic-tool" || type.startsWith("tool-")) return toolText(part);
  const { type: _, ...rest } = part;
  return `[${shortText(type)} ${shortJson(rest)}]`;
}

function textIn({ text }: Part): string {
  return typeof text === "string" ? text : "";
}

function toolText(part: Part): string {
  const name = part.type === "dynamic-tool" ? part["toolName"] : part.type.slice("tool-".length);
  const input = part["input"] === undefined ? "" : ` ${shortJson(part["input"])}`;
  const came = part["output"] ?? part["errorText"];
  const output = came === undefined ? ` (${shortText(part["state"])})` : ` → ${shortJson(came)}`;
  return `[${shortText(name)}${input}${output}]`;
}

/** How an answer ended, where that needs a word. */
export function outcomeText({ outcome, error }: Entry): string {
  const why = error ? `: ${sanitize(oneLine(`${error.code}: ${error.message}`, 500))}` : "";
  if (outcome === "stopped") return "(stopped)";
  if (outcome === "cut") return `(cut off${why})`;
  return outcome === "failed" ? `(failed${why})` : "";
}

function shortJson(value: unknown): string {
  return sanitize(oneLine(JSON.stringify(value) ?? "", shortChars));
}

function shortText(value: unknown): string {
  return typeof value === "string" ? sanitize(oneLine(value, shortChars)) : shortJson(value);
}
