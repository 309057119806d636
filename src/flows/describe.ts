import { dayMs } from "../base/durations.ts";
import type { Finalizer, Machine, FlowPart } from "./machine.ts";
import { atEnd } from "./decide/run.ts";

/** The number of runs at one cursor, by what they do. */
export type CursorCounts = {
  readonly running?: number;
  /** They wait to be claimed. */
  readonly ready?: number;
  /** They wait for their next attempt. */
  readonly retrying?: number;
  /** They wait for a time, a signal or children. */
  readonly waiting?: number;
  /** They can't be read, and no pod claims them. */
  readonly setAside?: number;
};

export type FlowCounts = {
  /** By cursor. Runs that haven't begun have none, and are counted under `start`. */
  readonly places?: Readonly<Record<string, CursorCounts>>;
  readonly completed?: number;
  readonly failed?: number;
  readonly cancelled?: number;
};

type Line = { readonly mark: string; readonly name: string; readonly what: string; at?: string };

const secondMs = 1_000;
const units = [
  ["d", dayMs],
  ["h", 3_600 * secondMs],
  ["min", 60 * secondMs],
  ["s", secondMs],
] as const;

/** Draws the machine as text, one line per part, with the number of runs at each. */
export function describeFlow(machine: Machine, counts: FlowCounts = {}): string {
  const { places = {} } = counts;
  const known = new Set(["start", atEnd]);
  const line = (part: FlowPart | Finalizer): Line => {
    known.add(part.name);
    const mark = part.kind === "finally" ? "├╌" : "├─";
    const at = countsAt(places, part.name);
    return { mark, name: part.name, what: whatItDoes(part, machine), at };
  };
  const lines = [
    { mark: "○", name: "start", what: "", at: countsAt(places, "start") },
    ...machine.parts.map(line),
    ...machine.finalizers.map(line),
    { mark: "●", name: "end", what: "", at: endCounts(counts, places) },
  ];
  const nameChars = Math.max(...lines.map(({ name }) => name.length));
  const whatChars = Math.max(...lines.map(({ what }) => what.length));
  const drawn = lines.map(({ mark, name, what, at }) =>
    `  ${mark.padEnd(2)} ${name.padEnd(nameChars)}  ${what.padEnd(whatChars)}  ${at}`.trimEnd(),
  );
  return [titleOf(machine), "", ...drawn, ...elsewhere(places, known)].join("\n");
}

function titleOf({ name, version, queue }: Machine): string {
  const where = queue === undefined ? "" : `, in queue ${queue.name} (${queue.limit} at once)`;
  return `${name}, version ${version}${where}`;
}

/** What a part does, in a few words, with the tries that differ from those of its flow. */
export function whatItDoes(part: FlowPart | Finalizer, machine: Machine): string {
  switch (part.kind) {
    case "signal": {
      if (part.timeoutMs === null) return "waits for a signal";
      const then = part.onTimeout === "fail" ? "fails" : "goes on";
      return `waits for a signal, ${then} after ${duration(part.timeoutMs)}`;
    }
    case "sleep":
      return part.ms === undefined ? "sleeps" : `sleeps ${duration(part.ms)}`;
    case "children":
      return `starts runs and waits for them${triesIn(part, machine)}`;
    case "finally":
      return `always${triesIn(part, machine)}`;
    case "work":
      return `runs${triesIn(part, machine)}`;
  }
}

/** Only what differs from the flow's defaults. */
function triesIn(
  { tries }: Exclude<FlowPart | Finalizer, { kind: "signal" }>,
  machine: Machine,
): string {
  const { attempts, timeoutMs } = tries;
  return [
    attempts === machine.tries.attempts ? "" : `, ${plural(attempts, "attempt")}`,
    timeoutMs === machine.tries.timeoutMs ? "" : `, ${duration(timeoutMs)} each`,
  ].join("");
}

function countsAt(places: Readonly<Record<string, CursorCounts>>, name: string): string {
  if (!Object.hasOwn(places, name)) return "";
  const { running, ready, retrying, waiting, setAside } = places[name]!;
  return listed({ running, ready, retrying, waiting, "set aside": setAside });
}

function endCounts(
  { completed, failed, cancelled }: FlowCounts,
  places: Readonly<Record<string, CursorCounts>>,
): string {
  const ended = listed({ completed, failed, cancelled });
  return [countsAt(places, atEnd), ended].filter((each) => each !== "").join(", ");
}

/** Runs at names that this version doesn't have: of another version, or set aside. */
function elsewhere(
  places: Readonly<Record<string, CursorCounts>>,
  known: ReadonlySet<string>,
): string[] {
  const lines = Object.keys(places)
    .filter((name) => !known.has(name))
    .map((name) => `  ${name}: ${countsAt(places, name)}`);
  return lines.length === 0 ? [] : ["", "At names that this version doesn't have:", ...lines];
}

function listed(counts: Readonly<Record<string, number | undefined>>): string {
  return Object.entries(counts)
    .filter(([, count]) => count !== undefined && count > 0)
    .map(([what, count]) => `${count} ${what}`)
    .join(", ");
}

function duration(ms: number): string {
  const unit = units.find(([, each]) => ms >= each && ms % each === 0);
  return unit ? `${ms / unit[1]} ${unit[0]}` : `${ms} ms`;
}

function plural(count: number, what: string): string {
  return `${count} ${what}${count === 1 ? "" : "s"}`;
}
