import { writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { pictureOfCurves } from "./curves.ts";
import type { Played, Round } from "./rows.ts";

const docs = fileURLToPath(new URL("../../docs/", import.meta.url));
const shown = [
  "flotilla",
  "flotilla_gradient",
  "flotilla_aimd",
  "aimd_per_pod",
  "gradient2",
  "envoy",
];

export function pictureName(scenario: string): string {
  return `throttle-${scenario}.svg`;
}

/** Draws what contenders did in one scenario into the documentation. */
export function drawPicture({ scenario, capacity, pods }: Round, played: readonly Played[]): void {
  const curves = shown.flatMap((name) => {
    const one = played.find(({ row }) => row.contender === name);
    return one ? [{ contender: name, slices: one.slices }] : [];
  });
  const title = `${scenario.name}: ${pods} pods, capacity ${capacity}`;
  const picture = pictureOfCurves({ title, curves, settledMs: scenario.settledMs });
  writeFileSync(`${docs}${pictureName(scenario.name)}`, picture);
}
