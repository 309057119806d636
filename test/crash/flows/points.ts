import { type End, type StoredRun, historyOf } from "./ends.ts";
import { scenarioOf } from "./machines.ts";
import { callsIn, type Report } from "./reports.ts";
import type { Stop } from "./stop.ts";

/** A run that is stopped somewhere, and the label that it and its family have of their own. */
export type Point = { readonly label: string; readonly key: string; readonly stop: Stop };

const allKinds: readonly Stop["at"][] = ["claim", "call", "before write", "after write"];

/** Every point of every run, each for a run of its own. */
export function pointsOf(
  reports: readonly Report[],
  kinds: readonly Stop["at"][] = allKinds,
): Point[] {
  const keys = [...new Set(reports.map(({ key }) => key))];
  const stops = keys.flatMap((key): { key: string; stop: Stop }[] => {
    const count = (event: string) =>
      reports.filter((each) => each.key === key && each.event === event).length;
    const each = (most: number, stopAt: (nth: number) => Stop) =>
      Array.from({ length: most }, (_, index) => ({ key, stop: stopAt(index + 1) }));
    return [
      { key, stop: { at: "claim" } },
      ...each(count("start"), (nth) => ({ at: "call", nth })),
      ...each(count("stored"), (nth) => ({ at: "before write", nth })),
      ...each(count("stored"), (nth) => ({ at: "after write", nth })),
    ];
  });
  const wanted = stops.filter(({ stop }) => kinds.includes(stop.at));
  return wanted.map(({ key, stop }, index) => {
    const label = `${index}`;
    return { label, key: key.replace("clean", label), stop };
  });
}

function cleanKey(key: string): string {
  return `clean/${key.split("/").slice(1).join("/")}`;
}

/** The points at which no run was stopped. Where two race, one may take a write less. */
export function notReached(points: readonly Point[], reports: readonly Report[]): string[] {
  const halted = new Set(reports.flatMap((each) => (each.event === "halted" ? [each.key] : [])));
  return points
    .filter(({ key }) => !halted.has(key) && scenarioOf(key) !== "rebels")
    .map(({ key, stop }) => `${key} ${JSON.stringify(stop)}`);
}

/** What of a run is stored that shouldn't be yet, or isn't and should be. */
export function notAt(
  { key, stop }: Point,
  stored: readonly StoredRun[],
  clean: ReadonlyMap<string, End>,
): string[] {
  const run = stored.find((each) => each.key === key);
  const name = `${key} ${JSON.stringify(stop)}`;
  if (!run) return [`${name}: there is no such run`];
  const told = historyOf(run);
  const all = clean.get(cleanKey(key))!.history;
  const isPrefix = told.every((event, at) => event === all[at]);
  const isSome = stop.at !== "after write" || run.events.length >= stop.nth;
  return isPrefix && isSome ? [] : [`${name}: ${told.join("\n")}`];
}

const racing = ["status", "result", "error"] as const;
const fields = [...racing, "state", "effects", "history"] as const;

/** What is different, in a run that was stopped or in its family, from an undisturbed one. */
export function differences(
  { label, key: stopped, stop }: Point,
  ends: ReadonlyMap<string, End>,
  clean: ReadonlyMap<string, End>,
): string[] {
  const root = stopped.split("/").slice(0, 2).join("/");
  const family = [...clean.keys()].filter((key) => `${key}/`.startsWith(`${cleanKey(root)}/`));
  // A cancel may come before anything else, where a run has to be begun again after it was asked for.
  const isRace = ["rebels", "is-cancelled"].includes(scenarioOf(stopped));
  return family.flatMap((was) => {
    const key = was.replace("clean", label);
    const name = `${stopped} ${JSON.stringify(stop)}: ${key}`;
    const end = ends.get(key);
    const expected = clean.get(was)!;
    if (!end) return [`${name} is nowhere`];
    const found: string[] = [];
    for (const field of isRace ? racing : fields) {
      const [is, should] = [JSON.stringify(end[field]), JSON.stringify(expected[field])];
      if (is !== should) found.push(`${name}: its ${field} is ${is}, not ${should}`);
    }
    // Only what was under way when the process was killed may have been done again, once.
    const undone = stop.at === "call" || stop.at === "before write";
    if (isRace && end.effects["tidy"] !== expected.effects["tidy"])
      found.push(`${name} isn't tidy`);
    // A live pod that a busy machine delays may be found dead as well, which its runs count.
    const killed = key === stopped ? 1 : 0;
    let again = (killed && undone ? 1 : 0) + Math.max(0, end.deaths - killed);
    for (const call of new Set([...Object.keys(end.calls), ...Object.keys(expected.calls)])) {
      const more = (end.calls[call] ?? 0) - (expected.calls[call] ?? 0);
      if (more === 1 && again-- > 0) continue;
      if (more < 0 && isRace) continue;
      if (more !== 0) found.push(`${name}: "${call}" ran ${more} times more`);
    }
    return found;
  });
}

/** What a pod ran although the store had it as completed before that pod came. */
export function runAgain(
  reports: readonly Report[],
  before: readonly StoredRun[],
  podId: string,
): string[] {
  const completed = new Set(
    before.flatMap(({ runId, events }) =>
      events.flatMap((event) =>
        event.type === "complete" ? [`${runId} ${event.transition}`] : [],
      ),
    ),
  );
  return callsIn(reports)
    .filter(({ pod }) => pod === podId)
    .map(({ runId, transition }) => `${runId} ${transition}`)
    .filter((call) => completed.has(call));
}
