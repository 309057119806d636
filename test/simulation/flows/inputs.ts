/** What chance gives a run to do: how each of its functions goes, and which children it has. */
import type { World } from "../world.ts";
import { type Fate, firstName, type Input, machines, orders } from "./machines.ts";

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
const kinds = { parent: ["plain", "parcel", "parcel", "ask"], order: ["parcel", "plain"] } as const;

export function drawInput(world: World, flow: string, op: number): Input {
  const fates: Record<string, Fate> = {};
  const draw = (name: string, among: readonly Fate["kind"][], share: number) => {
    const kind = world.chance(share) ? world.pick(among) : "well";
    fates[firstName(name)] = { kind, times: timesOf(world, kind), workMs: world.between(0, 2_000) };
  };
  // A later version doesn't know this one, so something is to stand there when that comes.
  for (const name of orders[flow]!) draw(name, fatesOfWork, name === "wrap" ? 0.8 : 0.3);
  for (const { name } of machines.get(3)!.get(flow)!.finalizers) draw(name, fatesOfFinalizers, 0.2);
  const possible = flow === "parent" || flow === "order" ? kinds[flow] : [];
  const kids = Array.from({ length: possible.length > 0 ? world.between(0, 3) : 0 }, () => {
    const kind = world.pick<string>(possible);
    return { flow: kind, input: drawInput(world, kind, op) };
  });
  return { op, fates, sleepMs: world.between(0, 3_000), kids };
}

function timesOf(world: World, kind: Fate["kind"]): number {
  if (kind === "poison" && world.chance(0.2)) return 100;
  if (kind === "handoff" || kind === "patient" || kind === "polite") return 100;
  return world.between(1, kind === "flaky" ? 4 : 2);
}
