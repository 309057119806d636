import type { Chunk } from "../../protocol/chunk.ts";
import { type Entry, isTurn, type Part, type SessionState } from "../../protocol/message.ts";
import { type Waiting, waitingAfter } from "../../protocol/waiting.ts";
import type { Place, SessionEvent, SessionView } from "../../sessions/service.ts";
import { harmless, oneLine } from "../output.ts";

/** Where a conversation is shown. */
export type Paper = {
  /** A line of its own. */
  line(text: string): void;
  /** More of the answer that is being made, on the line that it has reached. */
  more(text: string): void;
  /** Ends the line of an answer, if one is open. */
  end(): void;
};

export type TranscriptOptions = {
  paper: Paper;
  /** `live` shows answers as they are made, `lines` each message on a line, `json` as JSON. */
  form: "live" | "lines" | "json";
};

/** Answers that are shown while they are made need to be told from each other. */
type Live = {
  readonly epoch: number;
  readonly attempt: number;
  nextIndex: number;
  text: string;
  /** Where its turn stands in line, while it waits for a permit. */
  waiting: Waiting | undefined;
};

/** Turns what happens in a session into what is shown of it, and keeps the place it has come to. */
export function createTranscript({ paper, form }: TranscriptOptions) {
  const place: { lastSeq: number; incarnation?: string; lastMessageId?: string } = { lastSeq: 0 };
  /** Messages that were typed here, and are on the screen already. */
  const typed = new Set<string>();
  let state: SessionState = { state: "idle" };
  let live: Live | undefined;
  /** What of the answer is on the screen. */
  let shown = "";
  let stopper = "";

  const show = (text: string, agent: string): void => {
    if (text.startsWith(shown)) {
      if (shown === "" && text !== "") paper.more(`${nameOf(agent)}: `);
      paper.more(harmless(text.slice(shown.length)));
    } else {
      paper.end();
      paper.line("(it starts over)");
      paper.more(`${nameOf(agent)}: ${harmless(text)}`);
    }
    shown = text;
  };

  const chunks = (event: Extract<SessionEvent, { type: "chunks" }>): void => {
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
    if (form === "live" && waiting && !live.waiting) paper.line(waitText(waiting));
    live.waiting = waiting;
    const agent = isTurn(state) ? state.agent : "agent";
    // Half of a character waits for its other half.
    const whole = live.text.replace(/[\ud800-\udbff]$/, "");
    if (form === "live" && whole !== "") show(whole, agent);
  };

  const entry = (each: Entry): void => {
    if (form === "json") return paper.line(JSON.stringify(each));
    if (each.epoch !== undefined && each.role === "assistant" && shown !== "") return finish(each);
    // The answer is half on the screen: who stopped it is said at its end.
    if (each.kind === "stop" && shown !== "") return void (stopper = nameOf(each.author));
    if (typed.delete(each.messageId)) return;
    const said = [entryText(each), outcomeText(each)].filter((part) => part !== "").join(" ");
    if (each.kind === "stop") return paper.line(`(${nameOf(each.author)} ${said})`);
    const author = each.kind === "message" ? nameOf(each.author) : `(${each.kind})`;
    paper.line(`${author}: ${form === "lines" ? said.replaceAll("\n", "\\n") : said}`);
  };

  /** The stored answer is what counts, so what the screen has of it is made to end like it. */
  const finish = (answer: Entry): void => {
    const texts = answer.parts.filter(({ type }) => type === "text");
    const text = texts.map(saidIn).join("\n");
    if (text.startsWith(shown)) paper.more(harmless(text.slice(shown.length)));
    paper.end();
    if (!text.startsWith(shown)) paper.line(`${nameOf(answer.author)}: ${harmless(text)}`);
    for (const part of answer.parts) {
      const other = part.type === "text" || part.type === "reasoning" ? "" : partText(part);
      if (other !== "") paper.line(other);
    }
    const outcome = outcomeText(answer);
    const isNamed = stopper !== "" && answer.outcome === "stopped";
    if (outcome !== "") paper.line(isNamed ? `(stopped by ${stopper})` : outcome);
    stopper = "";
    shown = "";
    live = undefined;
  };

  return {
    get place(): Place {
      return { ...place };
    },
    get state(): SessionState {
      return state;
    },
    /** Begins where the last few entries do, so that a long history isn't shown again. */
    beginAfter(seq: number): void {
      place.lastSeq = seq;
    },
    /** A message that was typed here needs no line. */
    typed(messageId: string): void {
      if (form === "live") typed.add(messageId);
    },
    say(text: string): void {
      paper.end();
      if (form !== "json") paper.line(text);
    },
    /** Gives the entries that are new. */
    event(event: SessionEvent): Entry[] {
      switch (event.type) {
        case "joined":
          state = event.state;
          place.incarnation = event.incarnation;
          return [];
        case "reset":
          place.lastSeq = 0;
          delete place.lastMessageId;
          this.say("(the session isn't what it was here: all of it comes again)");
          return [];
        case "state":
          state = event.state;
          return [];
        case "chunks":
          chunks(event);
          return [];
        case "entries": {
          const fresh = event.entries.filter(({ seq }) => seq > place.lastSeq);
          for (const each of fresh) {
            place.lastSeq = each.seq;
            place.lastMessageId = each.messageId;
            entry(each);
          }
          return fresh;
        }
        case "deleted":
          this.say("(the session was deleted)");
          return [];
      }
    },
  };
}

export type Transcript = ReturnType<typeof createTranscript>;

/** How many entries of an earlier conversation are shown. */
const shownBefore = 20;

export function firstPlace({ lastSeq }: SessionView): number {
  return Math.max(0, lastSeq - shownBefore);
}

function nameOf(author: string): string {
  return harmless(oneLine(author, 80));
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
    return results.map((result) => `[result ${short(result)}]`).join("\n");
  }
  if (entry.kind === "stop") return "stopped the answer";
  return entry.parts
    .map(partText)
    .filter((each) => each !== "")
    .join("\n");
}

function partText(part: Part): string {
  const { type } = part;
  if (type === "text") return harmless(saidIn(part));
  if (type === "reasoning") return `(thinks) ${harmless(saidIn(part))}`;
  if (type === "step-start") return "";
  if (type === "file") return `[file ${shown(part["filename"] ?? part["mediaType"] ?? "")}]`;
  if (type === "source-url") return `[source ${shown(part["url"])}]`;
  if (type === "dynamic-tool" || type.startsWith("tool-")) return toolText(part);
  const { type: _, ...rest } = part;
  return `[${shown(type)} ${short(rest)}]`;
}

function saidIn({ text }: Part): string {
  return typeof text === "string" ? text : "";
}

function toolText(part: Part): string {
  const name = part.type === "dynamic-tool" ? part["toolName"] : part.type.slice("tool-".length);
  const input = part["input"] === undefined ? "" : ` ${short(part["input"])}`;
  const came = part["output"] ?? part["errorText"];
  const output = came === undefined ? ` (${shown(part["state"])})` : ` → ${short(came)}`;
  return `[${shown(name)}${input}${output}]`;
}

/** How an answer ended, where that needs a word. */
export function outcomeText({ outcome, error }: Entry): string {
  const why = error ? `: ${harmless(oneLine(`${error.code}: ${error.message}`, 500))}` : "";
  if (outcome === "stopped") return "(stopped)";
  if (outcome === "cut") return `(cut off${why})`;
  return outcome === "failed" ? `(failed${why})` : "";
}

function short(value: unknown): string {
  return harmless(oneLine(JSON.stringify(value) ?? "", shortChars));
}

function shown(value: unknown): string {
  return typeof value === "string" ? harmless(oneLine(value, shortChars)) : short(value);
}
