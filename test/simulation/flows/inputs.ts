/** What chance gives a run to do: how each of its functions goes, and which children it has. */
import type { World } from "../world.ts";
import { type Fate, firstName, type Input, machines, orders, signalNames } from "./machines.ts";

const fatesOfWork: readonly Fate["kind"][] = [
  "abort",
  "cancel",
  "flaky",
  "flaky",
  "handoff",
  "patient",
  "patient",
  "poison",
  "polite",
  "polite",
  "snooze",
  "stuck",
  "unrecoverable",
];
const fatesOfFinalizers: readonly Fate["kind"][] = [
  "abort",
  "flaky",
  "patient",
  "poison",
  "polite",
  "snooze",
  "stuck",
];
/** What makes a run stand where it is until another pod comes to it. */
const fatesOfStanding: readonly Fate["kind"][] = ["flaky", "poison", "snooze", "snooze", "stuck"];
/** What ends a child, once: started over, it goes well. */
const fatesOfKids: readonly Fate["kind"][] = ["abort", "abort", "cancel"];
const kinds = { parent: ["plain", "parcel", "parcel", "ask"], order: ["parcel", "plain"] } as const;

export function drawInput(world: World, flow: string, op: number): Input {
  const fates: Record<string, Fate> = {};
  const draw = (name: string, among: readonly Fate["kind"][], share: number) => {
    const kind = world.chance(share) ? world.pick(among) : "well";
    fates[firstName(name)] = { kind, times: timesOf(world, kind), workMs: world.between(0, 2_000) };
  };
  // A later version doesn't know this one, so something is to stand there when that comes.
  for (const name of orders[flow]!) {
    if (name === "wrap") draw(name, fatesOfStanding, 0.95);
    else draw(name, fatesOfWork, 0.3);
  }
  for (const { name } of machines.get(3)!.get(flow)!.finalizers) draw(name, fatesOfFinalizers, 0.2);
  const drawKids = (possible: readonly string[], most: number) =>
    Array.from({ length: world.between(0, most) }, () => {
      const kind = world.pick(possible);
      const input = drawInput(world, kind, op);
      const [first] = orders[kind]!;
      if (signalNames.includes(first!) || !world.chance(0.3)) return { flow: kind, input };
      const fate: Fate = { kind: world.pick(fatesOfKids), times: 1, workMs: world.between(0, 300) };
      return { flow: kind, input: { ...input, fates: { ...input.fates, [first!]: fate } } };
    });
  const sleepMs = world.between(0, 3_000);
  if (flow === "order") return { op, fates, sleepMs, kids: drawKids(kinds.order, 3) };
  if (flow !== "parent") return { op, fates, sleepMs, kids: [] };
  const kids = drawKids(kinds.parent, 2);
  return { op, fates, sleepMs, kids, scouts: drawKids(kinds.order, 2) };
}

function timesOf(world: World, kind: Fate["kind"]): number {
  if (kind === "poison" && world.chance(0.2)) return 100;
  if (kind === "handoff" || kind === "patient" || kind === "polite") return 100;
  return world.between(1, kind === "flaky" ? 4 : 2);
}
