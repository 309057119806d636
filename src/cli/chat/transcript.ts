import type { Chunk } from "../../protocol/chunk.ts";
import { type Entry, isTurn, type Part, type SessionState } from "../../protocol/message.ts";
import { type Waiting, waitingAfter } from "../../protocol/waiting.ts";
import type { JoinPosition, FeedEvent, SessionView } from "../../sessions/service.ts";
import { sanitize, oneLine } from "../output.ts";

/** The output of a conversation. */
export type TranscriptOutput = {
  /** A line of its own. */
  line(text: string): void;
  /** More of the current answer, on its current line. */
  more(text: string): void;
  /** Ends the line of an answer, if one is open. */
  end(): void;
};

export type TranscriptOptions = {
  output: TranscriptOutput;
  /** `live` shows answers as they are made, `lines` each message on a line, `json` as JSON. */
  form: "live" | "lines" | "json";
};

export type Transcript = ReturnType<typeof createTranscript>;

/** The answer that is being streamed; `epoch` and `attempt` identify it. */
type LiveText = {
  readonly epoch: number;
  readonly attempt: number;
  nextIndex: number;
  text: string;
  /** Its position in the throttle's queue, while it waits for a permit. */
  waiting: Waiting | undefined;
};

/** How many entries of an existing session are shown. */
const maxHistoryShown = 20;
const shortChars = 200;

/** Turns events of a session into output, and keeps the position to resume from. */
export function createTranscript({ output, form }: TranscriptOptions) {
  const position: { lastSeq: number; incarnation?: string; lastMessageId?: string } = {
    lastSeq: 0,
  };
  /** Messages typed on this terminal, which are on the screen already. */
  const typed = new Set<string>();
  let state: SessionState = { state: "idle" };
  let live: LiveText | undefined;
  /** The part of the answer that is on the screen. */
  let printed = "";
  let stopper = "";

  const show = (text: string, agent: string): void => {
    if (text.startsWith(printed)) {
      if (printed === "" && text !== "") output.more(`${nameOf(agent)}: `);
      output.more(sanitize(text.slice(printed.length)));
    } else {
      output.end();
      output.line("(the answer starts over)");
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
    // Chunks after a gap can't be shown; the entry brings the whole answer once it is stored.
    if (live?.epoch !== epoch || live.attempt !== attempt || live.nextIndex !== index) return;
    live.nextIndex = event.nextIndex ?? index + event.chunks.length;
    for (const chunk of event.chunks) live.text = withChunk(live.text, chunk);
    const waiting = waitingAfter(live.waiting, event.chunks);
    // Print this once, because the queue may move every second.
    if (form === "live" && waiting && !live.waiting) output.line(waitText(waiting));
    live.waiting = waiting;
    const agent = isTurn(state) ? state.agent : "agent";
    // Hold back half of a surrogate pair until its other half arrives.
    const whole = live.text.replace(/[\ud800-\udbff]$/, "");
    if (form === "live" && whole !== "") show(whole, agent);
  };

  const entry = (each: Entry): void => {
    if (form === "json") return output.line(JSON.stringify(each));
    if (each.epoch !== undefined && each.role === "assistant" && printed !== "")
      return finish(each);
    // The answer is partly on the screen, so `finish` prints who stopped it.
    if (each.kind === "stop" && printed !== "") return void (stopper = nameOf(each.author));
    if (typed.delete(each.messageId)) return;
    const line = [entryText(each), outcomeText(each)].filter((part) => part !== "").join(" ");
    if (each.kind === "stop") return output.line(`(${nameOf(each.author)} ${line})`);
    const author = each.kind === "message" ? nameOf(each.author) : `(${each.kind})`;
    output.line(`${author}: ${form === "lines" ? line.replaceAll("\n", "\\n") : line}`);
  };

  /** Completes the answer on the screen from the stored one, which is authoritative. */
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
    /** Sets the position to begin after, so that a long history isn't shown again. */
    beginAfter(seq: number): void {
      position.lastSeq = seq;
    },
    /** A message typed on this terminal isn't printed again. */
    typed(messageId: string): void {
      if (form === "live") typed.add(messageId);
    },
    notice(text: string): void {
      output.end();
      if (form !== "json") output.line(text);
    },
    /** Shows an event, and returns its new entries. */
    event(event: FeedEvent): Entry[] {
      switch (event.type) {
        case "joined":
          state = event.state;
          position.incarnation = event.incarnation;
          return [];
        case "reset":
          position.lastSeq = 0;
          delete position.lastMessageId;
          this.notice("(the session was replaced: showing it from the start)");
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

export function firstSeq({ lastSeq }: SessionView): number {
  return Math.max(0, lastSeq - maxHistoryShown);
}

/** An entry as text. Sanitized, because users and agents wrote it. */
export function entryText(entry: Entry): string {
  if (entry.kind === "tool_result") {
    const results = entry.results?.results ?? [];
    return results.map((result) => `[result ${shortJson(result)}]`).join("\n");
  }
  if (entry.kind === "stop") return "stopped the answer";
  if (entry.wake) {
    const { event, key, agent, atMs, cron } = entry.wake;
    const when = cron === undefined ? new Date(atMs).toISOString() : oneLine(cron, 200);
    const said = entry.parts.map(partText).filter((each) => each !== "");
    const what = `${event} wake ${oneLine(key, 100)} of ${oneLine(agent, 80)}, ${when}`;
    return [what, ...said].join("\n");
  }
  return entry.parts
    .map(partText)
    .filter((each) => each !== "")
    .join("\n");
}

/** The outcome of an answer; empty where it completed. */
export function outcomeText({ outcome, error }: Entry): string {
  const why = error ? `: ${oneLine(`${error.code}: ${error.message}`, 500)}` : "";
  if (outcome === "stopped") return "(stopped)";
  if (outcome === "cut") return `(cut off${why})`;
  return outcome === "failed" ? `(failed${why})` : "";
}

function nameOf(author: string): string {
  return oneLine(author, 80);
}

function waitText({ ahead, aboutMs }: Waiting): string {
  const before = ahead === 0 ? "next in line" : `${ahead} ahead of it`;
  const about =
    aboutMs === undefined ? "" : `, about ${Math.max(1, Math.round(aboutMs / 1_000))} s`;
  return `(waiting for a permit: ${before}${about})`;
}

/** Only text is shown while it streams; the stored answer brings the other parts. */
function withChunk(text: string, { type, delta }: Chunk): string {
  if (type === "text-start") return text === "" ? "" : `${text}\n`;
  return type === "text-delta" && typeof delta === "string" ? text + delta : text;
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
  const result = part["output"] ?? part["errorText"];
  const output =
    result === undefined ? ` (${shortText(part["state"])})` : ` → ${shortJson(result)}`;
  return `[${shortText(name)}${input}${output}]`;
}

function shortJson(value: unknown): string {
  return oneLine(JSON.stringify(value) ?? "", shortChars);
}

function shortText(value: unknown): string {
  return typeof value === "string" ? oneLine(value, shortChars) : shortJson(value);
}
