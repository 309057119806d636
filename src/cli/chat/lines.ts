import { FlotillaError } from "../../base/errors.ts";
import { dayMs, hourMs, minuteMs } from "../../base/durations.ts";

/** What a line of a chat asks for. */
export type ChatLine =
  | { readonly type: "say"; readonly text: string }
  | { readonly type: "file"; readonly path: string; readonly text: string }
  /** Without a place: behind the last entry. */
  | { readonly type: "fork"; readonly atSeq: number | undefined }
  /** Without a place: the last message of a user. */
  | { readonly type: "edit"; readonly seq: number | undefined; readonly text: string }
  | { readonly type: "wake"; readonly when: WakeTime; readonly message: string }
  | { readonly type: "wakes" }
  | { readonly type: "cancel_wake"; readonly key: string }
  | { readonly type: "help" };

export type WakeTime = { readonly afterMs: number } | { readonly at: string };

export const chatHelp = [
  '/file <path> [text]    send a file; "…" around a path with spaces',
  "/fork [seq]            go on in a session that begins with the same entries, up to #seq",
  "/edit [#seq] <text>    say the last message anew, or that at #seq, in a fork",
  "/wake <when> [text]    have the agent asked: in 30s, 10m, 2h, 1d, or at 2026-01-31T08:00:00Z",
  "/wake                  what is set; /wake cancel <key> cancels it",
  "//…                    say something that begins with /",
];

const unitMs: Readonly<Record<string, number>> = {
  s: 1_000,
  m: minuteMs,
  h: hourMs,
  d: dayMs,
};

/** Reads a line. One that begins with a slash is a command, and one with two says what is behind the first. */
export function readLine(line: string): ChatLine {
  const text = line.trimEnd();
  if (!text.startsWith("/")) return { type: "say", text: line };
  if (text.startsWith("//")) return { type: "say", text: text.slice(1) };
  const [, name = "", rest = ""] = /^\/(\S*)\s*(.*)$/s.exec(text)!;
  switch (name) {
    case "file": {
      const [, quoted, bare, said = ""] = /^(?:"([^"]+)"|(\S+))\s*(.*)$/s.exec(rest) ?? [];
      const path = quoted ?? bare;
      if (path === undefined) throw wrong("/file needs a path: /file photo.png What is this?");
      return { type: "file", path, text: said };
    }
    case "fork":
      return { type: "fork", atSeq: rest === "" ? undefined : seqOf(rest, "/fork 12") };
    case "edit": {
      const [, place, said = ""] = /^(?:(#\d+)\s*)?(.*)$/s.exec(rest)!;
      if (said === "") throw wrong("/edit needs what to say instead: /edit In French, please.");
      const seq = place === undefined ? undefined : seqOf(place, "/edit #3 In French, please.");
      return { type: "edit", seq, text: said };
    }
    case "wake":
      return wakeOf(rest);
    case "help":
      return { type: "help" };
    default:
      throw wrong(`there is no /${name.slice(0, 40)}: /help lists commands, and //… says it`);
  }
}

function wakeOf(rest: string): ChatLine {
  if (rest === "") return { type: "wakes" };
  const [, when = "", message = ""] = /^(\S+)\s*(.*)$/s.exec(rest)!;
  if (when === "cancel") {
    if (message === "") throw wrong("/wake cancel needs the key that /wake shows");
    return { type: "cancel_wake", key: message };
  }
  const [, count, unit = ""] = /^(\d{1,6})([smhd])$/.exec(when) ?? [];
  if (count !== undefined) {
    return { type: "wake", when: { afterMs: Number(count) * unitMs[unit]! }, message };
  }
  if (/^\d{4}-\d{2}-\d{2}T/.test(when) && !Number.isNaN(Date.parse(when))) {
    return { type: "wake", when: { at: when }, message };
  }
  throw wrong(
    `/wake needs a time such as 10m, 2h or 2026-01-31T08:00:00Z, not ${when.slice(0, 40)}`,
  );
}

function seqOf(text: string, example: string): number {
  const digits = /^#?(\d{1,15})$/.exec(text)?.[1];
  if (digits !== undefined && Number(digits) > 0) return Number(digits);
  throw wrong(`the place is the number of an entry: ${example}`);
}

function wrong(message: string): FlotillaError {
  return new FlotillaError("invalid_input", message);
}
